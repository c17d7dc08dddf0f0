#!/usr/bin/env python3
"""tests/tokenizer/compare_wheels.py FORGE [--lines N] [--shape NAME …] [--seed S] [--speed]: every id of `forge tokenize` against the
libraries tokenizers, tiktoken and sentencepiece (pip install tokenizers tiktoken sentencepiece numpy) on N drawn lines for each shape
of shapes.py, whose tokenizers are trained here. A line is a document: in a .jsonl file, or, where it is no UTF-8, in a file of its own.
--speed: the rates beside one another, of a long text. Ends with 1 where an id differs."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

import shapes


def tokenize(forge, arguments, files, folder):
    out = os.path.join(folder, "ids.bin")
    subprocess.run([forge, "tokenize", *files, "--output", out, "--format", "uint32", *arguments], check=True, stdout=subprocess.DEVNULL)
    ids = np.fromfile(out, dtype=np.uint32)
    os.remove(out)
    return ids


def as_jsonl(texts, path):
    with open(path, "w", encoding="utf-8") as f:
        for text in texts:
            f.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def first_difference(forge, arguments, texts, encode, folder):
    """The text whose ids differ, by halving."""
    path = os.path.join(folder, "part.jsonl")
    while len(texts) > 1:
        half = texts[:len(texts) // 2]
        as_jsonl(half, path)
        expected = np.array([i for ids in encode(half) for i in ids], dtype=np.uint32)
        got = tokenize(forge, arguments, [path], folder) if len(expected) else expected
        texts = texts[len(texts) // 2:] if np.array_equal(got, expected) else half
    as_jsonl(texts, path)
    got = tokenize(forge, arguments, [path], folder) if encode(texts)[0] else []
    return texts[0], list(got), list(encode(texts)[0])


def compare(forge, name, lines, train, folder, size):
    path, more, encode = shapes.SHAPES[name](train, folder, size)
    arguments = ["--tokenizer", path, *more]
    texts = [t for t in shapes.texts_of(lines) if t]
    started = time.time()
    expected = [i for ids in encode(texts) for i in ids]
    wheel = time.time() - started
    jsonl = os.path.join(folder, "lines.jsonl")
    as_jsonl(texts, jsonl)
    started = time.time()
    got = tokenize(forge, arguments, [jsonl], folder)
    mine = time.time() - started
    if not np.array_equal(got, np.array(expected, dtype=np.uint32)):
        text, a, b = first_difference(forge, arguments, texts, encode, folder)
        at = next((i for i, pair in enumerate(zip(a, b)) if pair[0] != pair[1]), min(len(a), len(b)))
        print(f"{name}: DIFFERS for {text!r}\n  from id {at} on: forge {list(map(int, a[at:at + 10]))}, library {b[at:at + 10]}")
        return False
    # The bytes as they are: a file is a document, and the library gets the text with U+FFFD.
    broken = [data for data in lines if data and data != data.decode("utf-8", "replace").encode()][:200]
    files = []
    for i, data in enumerate(broken):
        files.append(os.path.join(folder, f"{i}.txt"))
        with open(files[-1], "wb") as f:
            f.write(data)
    expected_broken = [i for ids in encode(shapes.texts_of(broken)) for i in ids]
    got = tokenize(forge, arguments, files, folder) if expected_broken else []
    if not np.array_equal(got, np.array(expected_broken, dtype=np.uint32)):
        print(f"{name}: DIFFERS for broken UTF-8")
        return False
    # A long text, which the threads share.
    long_text = "\n".join(texts)[:4_000_000]
    with open(files[0] if files else jsonl + ".txt", "w", encoding="utf-8", newline="") as f:
        f.write(long_text)
    got = tokenize(forge, arguments, [f.name], folder)
    expected_long = np.array(encode([long_text])[0], dtype=np.uint32)
    if not np.array_equal(got, expected_long):
        print(f"{name}: DIFFERS for a text of {len(long_text)} characters, from id "
              f"{next((i for i, (a, b) in enumerate(zip(got, expected_long)) if a != b), -1)} on")
        return False
    print(f"{name}: {len(texts)} texts and one of {len(long_text)} characters, {len(expected)} ids equal; wheel {wheel:.1f} s, forge {mine:.1f} s", flush=True)
    return True


def speed(forge, name, train, folder, size, megabytes):
    """A long text and many documents, beside the library on the documents (on the long text, where it has no pre-tokenizer)."""
    path, more, encode = shapes.SHAPES[name](train, folder, size)
    base = [t for t in shapes.texts_of(shapes.corpus(20000, 5)) if t]
    documents, total = [], 0
    while total < megabytes * 1e6:
        documents.append("\n".join(base[(len(documents) * 37 + i) % len(base)] for i in range(40)))
        total += len(documents[-1].encode())
    jsonl, text = os.path.join(folder, "speed.jsonl"), os.path.join(folder, "speed.txt")
    as_jsonl(documents, jsonl)
    with open(text, "w", encoding="utf-8", newline="") as f:
        f.write("\n".join(documents))
    rates = []
    for files in ([jsonl], [text]):
        started = time.time()
        tokenize(forge, ["--tokenizer", path, *more], files, folder)
        rates.append(total / 1e6 / (time.time() - started))
    started = time.time()
    encode(documents)
    wheel = total / 1e6 / (time.time() - started)
    print(f"{name}: {megabytes} MB: forge {rates[0]:.1f} MB/s of documents, {rates[1]:.1f} MB/s of one text; wheel {wheel:.1f} MB/s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("forge")
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--shape", action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--speed", type=int, default=0, metavar="MB")
    options = parser.parse_args()
    train = shapes.texts_of(shapes.corpus(4000, 99))
    lines = shapes.corpus(options.lines, options.seed)
    good = True
    for name in options.shape or shapes.SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            if options.speed:
                speed(options.forge, name, train, folder, options.vocabulary, options.speed)
            else:
                good = compare(options.forge, name, lines, train, folder, options.vocabulary) and good
    sys.exit(not good)


if __name__ == "__main__":
    main()
