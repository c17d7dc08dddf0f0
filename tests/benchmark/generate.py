#!/usr/bin/env python3
"""How fast forge generates at GPT-2's size (124 M parameters, random weights), in fp32 and bf16, programs in turn; or by a
model of models.py.

    python3 tests/benchmark/generate.py [--forge build/cpu/forge OTHER/forge ...] [--model NAME] [--prompt 512] [--length 48]

Each program prints its tokens a second, of the prompt's pass and of the text. Every repeat runs each program once; the table
has the median of repeats, and the ratio of the first program to each other one within a repeat.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile

from compare import Forge, environment
from models import GPU_MODELS, MODELS

DECK = """\
model: {{family: gpt2, layers: 12, width: 768, heads: 12, ffn: 3072, activation: gelu_tanh, vocabulary: 50257, max_positions: 1024, tied_embeddings: true}}
train: {{steps: 1, global_batch_sequences: 1, microbatch_sequences: 1, sequence_tokens: 1024, precision: {precision}}}
data: {{files: [{folder}/none.bin]}}
machine: {{threads: {threads}}}
"""


def rates(program, deck, threads, prompt, length):
    """Tokens a second of text, and of the prompt."""
    tokens = ",".join(str(7 * i % 97) for i in range(prompt))
    command = [program, "generate", deck, "--initial", "--tokens", tokens, "--length", str(length), "--ignore-end"]
    done = subprocess.run(command, env=environment(threads), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{program} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    said = re.search(r"prompt ([0-9.]+) tokens/s, text ([0-9.]+) tokens/s", done.stderr)
    return float(said.group(2)), float(said.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forge", nargs="+", default=["build/cpu/forge"])
    parser.add_argument("--model", choices=MODELS | GPU_MODELS, help="default: GPT-2, small")
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--prompt", type=int, default=512, help="its tokens")
    parser.add_argument("--length", type=int, default=48, help="tokens of text")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    programs = [os.path.abspath(p) for p in arguments.forge]
    with tempfile.TemporaryDirectory() as folder:
        for precision in arguments.precision:
            deck = os.path.join(folder, f"{precision}.yaml")
            text = DECK.format(precision=precision, folder=folder, threads=arguments.threads)
            if arguments.model:
                text = Forge(programs[0], arguments.model, precision, arguments.threads, folder).deck(1)
            with open(deck, "w") as file:
                file.write(text)
            found = {p: [] for p in programs}
            for repeat in range(arguments.repeats):
                shift = repeat % len(programs)  # so that nobody always runs behind the same other
                for p in programs[shift:] + programs[:shift]:
                    found[p].append(rates(p, deck, arguments.threads, arguments.prompt, arguments.length))
            for p in programs:
                text = statistics.median(t for t, _ in found[p])
                ratio = statistics.median(a / b for (a, _), (b, _) in zip(found[programs[0]], found[p]))
                prompt = statistics.median(q for _, q in found[p])
                print(f"{precision}  text {text:7.1f}  prompt {prompt:8.0f} tokens/s  {ratio:5.2f} of it: {p}", flush=True)
                if arguments.model:
                    print(f"summary: {arguments.model}, {precision}: {text:.1f} tokens/s of text, {prompt:.0f} of the prompt")


if __name__ == "__main__":
    main()
