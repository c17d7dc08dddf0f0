#!/usr/bin/env python3
"""lm-eval's harness over one running forge, on any layout: pip install lm-eval, then

    python3 verify/lm_eval_forge.py --model_args deck=runs/quickstart/hf,command=build/cpu/forge --tasks arc_easy
    python3 verify/lm_eval_forge.py --model_args "deck=MODEL,command=srun build/cuda/forge,options=--set mesh.tp=8" --tasks mmlu

The arguments are lm-eval's own (`lm-eval run`), with --model forge. model_args: deck (a deck or a directory), command (how forge is
started; default build/cpu/forge), options (more options of forge, as a shell reads them).

Texts go to `forge score DECK - --output -` as lines of JSON, a batch at a time with an empty line behind it, and a row comes back for
each line; forge makes the ids. docs/running.md says how a context is cut, and which token an empty one is.
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

    def __init__(self, command, verb, deck, options):
        self.arguments = [*shlex.split(command), verb, deck, "-", "--output", "-", *shlex.split(options)]
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


@register_model("forge")
class ForgeLM(LM):
    def __init__(self, deck, command="build/cpu/forge", options="", **_):
        super().__init__()
        self.deck = deck
        self.scores = Served(command, "score", deck, options)

    @classmethod
    def create_from_arg_obj(cls, arguments, additional_config=None):
        return cls(**arguments)

    @property
    def tokenizer_name(self):
        return os.path.basename(os.path.normpath(self.deck))

    def loglikelihood(self, requests, disable_tqdm=False):
        rows = self.scores.ask([{"context": r.args[0], "continuation": r.args[1]} for r in requests])
        answers = [(row["log_likelihood"], row["greedy"]) for row in rows]
        for request, answer in zip(requests, answers):
            self.cache_hook.add_partial("loglikelihood", request.args, answer)
        return answers

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        rows = self.scores.ask([{"continuation": r.args[0]} for r in requests])
        for request, row in zip(requests, rows):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, row["log_likelihood"])
        return [row["log_likelihood"] for row in rows]

    def generate_until(self, requests, disable_tqdm=False):
        raise NotImplementedError("tasks that generate text are not there yet: legal are those of log-likelihoods")


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    if not any(word == "--model" or word.startswith("--model=") for word in sys.argv):
        first = 2 if sys.argv[1:2] == ["run"] else 1
        sys.argv[first:first] = ["--model", "forge"]
    cli_evaluate()
