#!/usr/bin/env python3
"""tokenizing.py [TEXT] [--forge FORGE] [--megabytes N] [--ids N] [--threads N] [--repeats N]: tokenizing beside the wheels tokenizers and
tiktoken (pip install numpy tokenizers tiktoken). Trains a byte-level BPE of N ids (32,000) on the text with forge, cuts the text's first
N megabytes (40) into documents of about 10 kB at line ends, and tokenizes them in turn with the three, on as many threads (2). TEXT is a
text in UTF-8, or a token file of bytes: by default data/quickstart/train.bin, which jobscripts/prepare_quickstart.sh makes. forge's time
is of the whole program: start, reading and writing included; the wheels' of encoding a list in memory (encode_batch of tokenizers,
encode_ordinary_batch of tiktoken). Prints the median MB/s of each and the medians of the repeats' ratios; ends with 1 where an id differs."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np


def read_text(path, size):
    if path.endswith(".bin"):
        return np.fromfile(path, dtype=np.uint16, count=size).astype(np.uint8).tobytes()
    with open(path, "rb") as file:
        return file.read(size)


def documents_of(text, size=10_000):
    documents, begin = [], 0
    while begin < len(text):
        end = text.find(b"\n", begin + size) + 1 or len(text)
        documents.append(text[begin:end].decode("utf-8", "replace"))
        begin = end
    return documents


def tiktoken_of(path):
    """The same tokens, ranks and pattern as the tokenizer.json that forge has written."""
    import tiktoken
    with open(path, encoding="utf-8") as file:
        described = json.load(file)
    special = {token["content"]: token["id"] for token in described["added_tokens"]}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    byte_of = {chr(byte): byte for byte in printable}
    byte_of.update({chr(256 + i): byte for i, byte in enumerate(b for b in range(256) if b not in printable)})
    ranks = {bytes(byte_of[c] for c in token): id for token, id in described["model"]["vocab"].items() if token not in special}
    steps = described["pre_tokenizer"].get("pretokenizers", [described["pre_tokenizer"]])
    pattern = next(step["pattern"]["Regex"] for step in steps if step["type"] == "Split")
    return tiktoken.Encoding("trained", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="?", default="data/quickstart/train.bin")
    parser.add_argument("--forge", default="build/cpu/forge")
    parser.add_argument("--megabytes", type=float, default=40)
    parser.add_argument("--ids", type=int, default=32_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)  # read by tokenizers at its first use
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    import tokenizers

    documents = documents_of(read_text(options.text, int(options.megabytes * 1e6)))
    megabytes = sum(len(document.encode()) for document in documents) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        lines, trained, ids = (os.path.join(folder, name) for name in ("documents.jsonl", "tokenizer.json", "ids.bin"))
        with open(lines, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": document}, ensure_ascii=False) + "\n" for document in documents)
        started = time.perf_counter()
        subprocess.run([options.forge, "tokenize", lines, "--train-bpe", str(options.ids), "--output", trained], check=True, stdout=subprocess.DEVNULL)
        print(f"{megabytes:.1f} MB, {len(documents)} documents; a BPE of {options.ids} ids trained by forge in {time.perf_counter() - started:.1f} s")
        hugging_face, open_ai = tokenizers.Tokenizer.from_file(trained), tiktoken_of(trained)

        def by_forge():
            subprocess.run([options.forge, "tokenize", lines, "--tokenizer", trained, "--threads", str(options.threads), "--format", "uint32",
                            "--output", ids], check=True, stdout=subprocess.DEVNULL)

        contenders = {
            "forge": by_forge,
            "tokenizers": lambda: hugging_face.encode_batch(documents, add_special_tokens=False),
            "tiktoken": lambda: open_ai.encode_ordinary_batch(documents, num_threads=options.threads),
        }
        seconds, same = {name: [] for name in contenders}, True
        for repeat in range(options.repeats):
            for name, tokenize in contenders.items():
                started = time.perf_counter()
                result = tokenize()
                seconds[name].append(time.perf_counter() - started)
                if repeat == 0 and name != "forge":
                    theirs = np.fromiter((id for one in result for id in (one.ids if name == "tokenizers" else one)), dtype=np.uint32)
                    same = same and np.array_equal(theirs, np.fromfile(ids, dtype=np.uint32))
                    print(f"{name}: {'the same' if same else 'OTHER'} ids, {len(theirs)}", flush=True)
                del result
        for name, taken in seconds.items():
            rates = " ".join(f"{megabytes / one:.1f}" for one in taken)
            times = statistics.median(other / own for own, other in zip(seconds["forge"], taken))
            print(f"{name}: {megabytes / statistics.median(taken):.1f} MB/s ({rates})" + ("" if name == "forge" else f"; forge is {times:.1f} times as fast"))
    sys.exit(not same)


if __name__ == "__main__":
    main()
