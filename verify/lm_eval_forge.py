#!/usr/bin/env python3
"""lm-eval's harness over one running forge, on any layout: pip install lm-eval, then

    python3 verify/lm_eval_forge.py --model_args deck=runs/quickstart/hf,command=build/cpu/forge --tasks arc_easy
    python3 verify/lm_eval_forge.py --model_args "deck=MODEL,command=srun build/cuda/forge,options=--set mesh.tp=8" --tasks mmlu

The arguments are lm-eval's own (`lm-eval run`), with --model forge. model_args: deck (a deck or a directory), command (how forge is
started; default build/cpu/forge), options (more options of forge, as a shell reads them).

Texts go to `forge score DECK - --output -`, or `forge generate DECK --prompts - --output -`, as lines of JSON, a batch at a time with an
empty line behind it, and a row comes back for each line; forge makes the ids. One of the two runs at a time. docs/finetuning.md says how a
context is cut, and which token an empty one is.
"""

import json
import os
import shlex
import subprocess
import sys

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:
    sys.exit("lm_eval_forge.py needs lm-eval, which is not installed: pip install lm-eval")


class Served:
    """A forge that reads batches of lines and answers each line with a row."""

    def __init__(self, command, words, options):
        self.arguments = [*shlex.split(command), *words, "--output", "-", *shlex.split(options)]
        self.process = None

    def ask(self, lines):
        if not lines:
            return []
        if self.process is None:
            self.process = subprocess.Popen(self.arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            # It answers behind the empty line: nothing of it waits for a reader before.
            self.process.stdin.writelines(json.dumps(line) + "\n" for line in lines)
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.refuse()
        rows = []
        for _ in lines:
            row = self.process.stdout.readline()
            if not row:
                self.refuse()
            rows.append(json.loads(row))
        return rows

    def refuse(self):
        raise RuntimeError(f"forge ended with {self.process.wait()}, its message is above: {shlex.join(self.arguments)}")

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def text_line(prompt, options):
    """A line for forge generate, of a request's arguments; what lm-eval's own models read of them, and nothing else silently."""
    options = dict(options)
    until = options.pop("until", None) or []
    until = [until] if isinstance(until, str) else list(until)
    line = {"prompt": prompt, "stop": [text for text in until if text]}
    lengths = [options.pop(name) for name in ("max_gen_toks", "max_new_tokens", "max_tokens") if name in options]
    line["length"] = lengths[0] if lengths else 256
    sampled = options.pop("do_sample", None)
    temperature = options.pop("temperature", None)
    line["temperature"] = 0 if sampled is False or (sampled is None and not temperature) else 1.0 if temperature is None else temperature
    for name in ("top_k", "top_p", "seed"):
        if options.get(name) is not None:
            line[name] = options[name]
        options.pop(name, None)
    if options:
        raise ValueError(f"generation_kwargs: {', '.join(sorted(options))}; legal: until, max_gen_toks, do_sample, temperature, top_k, top_p, seed")
    return line


@register_model("forge")
class ForgeLM(LM):
    def __init__(self, deck, command="build/cpu/forge", options="", **_):
        super().__init__()
        self.deck = deck
        self.scores = Served(command, ["score", deck, "-"], options)
        self.texts = Served(command, ["generate", deck, "--prompts", "-"], options)

    @classmethod
    def create_from_arg_obj(cls, arguments, additional_config=None):
        return cls(**arguments)

    @property
    def tokenizer_name(self):
        return os.path.basename(os.path.normpath(self.deck))

    def ask(self, asked, other, lines):
        if lines:
            other.close()  # the model has the memory of one
        return asked.ask(lines)

    def close(self):
        self.scores.close()
        self.texts.close()

    def loglikelihood(self, requests, disable_tqdm=False):
        rows = self.ask(self.scores, self.texts, [{"context": r.args[0], "continuation": r.args[1]} for r in requests])
        answers = [(row["log_likelihood"], row["greedy"]) for row in rows]
        for request, answer in zip(requests, answers):
            self.cache_hook.add_partial("loglikelihood", request.args, answer)
        return answers

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        rows = self.ask(self.scores, self.texts, [{"continuation": r.args[0]} for r in requests])
        for request, row in zip(requests, rows):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, row["log_likelihood"])
        return [row["log_likelihood"] for row in rows]

    def generate_until(self, requests, disable_tqdm=False):
        rows = self.ask(self.texts, self.scores, [text_line(*r.args) for r in requests])
        for request, row in zip(requests, rows):
            self.cache_hook.add_partial("generate_until", request.args, row["text"])
        return [row["text"] for row in rows]


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    if not any(word == "--model" or word.startswith("--model=") for word in sys.argv):
        first = 2 if sys.argv[1:2] == ["run"] else 1
        sys.argv[first:first] = ["--model", "forge"]
    cli_evaluate()
