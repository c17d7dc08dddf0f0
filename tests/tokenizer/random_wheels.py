#!/usr/bin/env python3
"""tests/tokenizer/random_wheels.py FORGE [--files N] [--seed S]: draws N tokenizer.json files, each of a model trained here (byte-level
BPE, BPE of characters with and without prefix or suffix, Unigram), drawn normalizers, pre-tokenizers and added tokens, and holds the ids of `forge
tokenize` to the library tokenizers (pip install tokenizers numpy) on drawn and on awkward texts. A file that the library doesn't load, or
forge refuses, and a text on which the library fails, are counted. Ends with 1 where an id differs, and leaves the file."""
import argparse
import collections
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import shapes

REGEXES = [shapes.GPT2, shapes.LLAMA3, shapes.QWEN, shapes.O200K, shapes.DEEPSEEK, r"\s+", r"\d{1,3}", r"\w+|[^\w\s]+", r"(?<=a)b", r"\b", r"^a|z$",
           r"[^\S\n]", r"\p{Han}", r"[[:alpha:]]+", r"[\p{L}&&[^a-z]]", r"(?i)the", r"\R", r"\h+", r"$", r"(?=\d)", r"a?", r"(?m)^.", r".", r"\n|\r\n",
           r"\x{e9}|\u00e9", r"[^a-zA-Z0-9 \n]", r"(?<!\d)\d+(?!\d)", r"\A.", r".\z", r"[\w&&\d]+", r"\S+\s?", r"(?>a|ab)c?", r"\p{Lu}\p{Ll}*",
           r"[[:space:]]+", r"[[:punct:]]+", r"[[:^alnum:]]", r"(?:\r?\n)+", r"\p{^L}+", r"[\s\S]{3}", r"\bthe\b", r"\B.", r"(?i:k)"]
EMPTY = [r"\b", r"$", r"(?=\d)", r"a?"]  # the library's Replace garbles the text around empty matches
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
AWKWARD = [" ", "  ", " a", "a ", "\n", "the", " the", "state", "xstate", "state x", "e\u0301tat <pad> [INST]]", "[INST] [INST]] <pad>  state ", "<s>a</s>",
           "\u0301a", "\r\n\r\n", "\x0b\x85 a", "a" * 300, "the " * 60, "世界世界", "\x00a", "Ｚürich ﬁne THE The"]
ADDED = ["[INST]", "<pad>", "state", "the", " ", "  ", "Zürich", "▁a", "<s>", "[INST]]", "e", "\n", "é", "THE", "<|x|>", "a b", "<unk>", "Ｚ", "ﬁ", " the", "\u0301"]


def trained():
    texts = shapes.texts_of(shapes.corpus(3000, 99))
    plain = [t.encode("ascii", "ignore").decode() + "é世Zürich" for t in texts]
    hexadecimal = [f"<0x{i:02X}>" for i in range(256)]

    def bpe(cut, specials, **options):
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = cut
        t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1800, show_progress=False, special_tokens=specials, **options))
        return json.loads(t.to_str())["model"]
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.train_from_iterator(plain, trainers.UnigramTrainer(vocab_size=1200, show_progress=False, special_tokens=["<unk>", "</s>", *hexadecimal], unk_token="<unk>"))
    return {
        "bytes": bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<unk>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
        "characters": bpe(pre_tokenizers.Metaspace(), ["<unk>", "<s>", "</s>", *hexadecimal], limit_alphabet=300),
        "suffix": bpe(pre_tokenizers.Whitespace(), ["<unk>"], limit_alphabet=300, end_of_word_suffix="</w>"),
        "prefix": bpe(pre_tokenizers.Whitespace(), ["<unk>"], limit_alphabet=300, continuing_subword_prefix="##"),
        "unigram": json.loads(unigram.to_str())["model"],
    }


def normalizer(r, depth=0):
    kind = r.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "Strip", "Prepend", "Replace", "Regex", "Bert", "Sequence"])
    if kind == "Strip":
        return {"type": kind, "strip_left": r.random() < .6, "strip_right": r.random() < .6}
    if kind == "Prepend":
        return {"type": kind, "prepend": r.choice(["▁", " ", "ab", "\u0301"])}
    if kind == "Replace":
        return {"type": kind, "pattern": {"String": r.choice([" ", "  ", "a", "the", "\n", "é", "e"])}, "content": r.choice(["▁", "", " ", "xx", "\u0301"])}
    if kind == "Regex":
        return {"type": "Replace", "pattern": {"Regex": r.choice([x for x in REGEXES if x not in EMPTY])}, "content": r.choice(["▁", "", " ", "$1"])}
    if kind == "Bert":
        return {"type": "BertNormalizer", "clean_text": r.random() < .5, "handle_chinese_chars": r.random() < .5,
                "strip_accents": r.choice([None, True, False]), "lowercase": r.random() < .5}
    if kind == "Sequence":
        return {"type": kind, "normalizers": [normalizer(r, depth + 1) for _ in range(r.randint(0, 3))] if depth < 2 else []}
    return {"type": kind}


def byte_level(r):
    return {"type": "ByteLevel", "add_prefix_space": r.random() < .4, "trim_offsets": True, "use_regex": r.random() < .6}


def metaspace(r):
    return {"type": "Metaspace", "replacement": r.choice(["▁", "▁", "_"]), "prepend_scheme": r.choice(["first", "never", "always"]), "split": r.random() < .5}


def pre_tokenizer(r, depth=0):
    kind = r.choice(["ByteLevel", "Regex", "Regex", "String", "Metaspace", "Whitespace", "WhitespaceSplit", "Digits", "Punctuation", "BertPreTokenizer",
                     "CharDelimiterSplit", "Sequence", "Sequence"])
    if kind == "ByteLevel":
        return byte_level(r)
    if kind == "Metaspace":
        return metaspace(r)
    if kind in ("Regex", "String"):
        pattern = r.choice(REGEXES if kind == "Regex" else [" ", "-", "the", "  ", "aa", "\n"])
        return {"type": "Split", "pattern": {kind: pattern}, "behavior": r.choice(BEHAVIORS), "invert": r.random() < .2}
    if kind == "Digits":
        return {"type": kind, "individual_digits": r.random() < .5}
    if kind == "Punctuation":
        return {"type": kind, "behavior": r.choice(BEHAVIORS)}
    if kind == "CharDelimiterSplit":
        return {"type": kind, "delimiter": r.choice([" ", "e", "\n", "世"])}
    if kind == "Sequence":
        return {"type": kind, "pretokenizers": [pre_tokenizer(r, depth + 1) for _ in range(r.randint(0, 3))] if depth < 2 else []}
    return {"type": kind}


def tokenizer_file(r, base):
    kind = r.choice(["bytes", "bytes", "characters", "characters", "suffix", "prefix", "unigram", "unigram"])
    model = json.loads(json.dumps(base[kind]))
    if kind == "unigram":
        model["byte_fallback"] = r.random() < .5
    else:
        model.update(byte_fallback=r.random() < .4, fuse_unk=r.random() < .5, unk_token=r.choice(["<unk>", None]), ignore_merges=r.random() < .3)
        if r.random() < .1:
            model["merges"] = model["merges"][:200]
        if r.random() < .1:
            r.shuffle(model["merges"])
    cut = r.choice([None, metaspace(r), pre_tokenizer(r)])
    if kind == "bytes":
        cut = {"type": "Sequence", "pretokenizers": [*(pre_tokenizer(r, 1) for _ in range(r.randint(0, 2))), byte_level(r)]}
    added = []
    for i, text in enumerate(r.sample(ADDED, r.choice([0, 0, 1, 3, 6]))):
        flag = lambda share: r.random() < share
        added.append({"id": len(model["vocab"]) + i, "content": text, "single_word": flag(.3), "lstrip": flag(.3), "rstrip": flag(.3),
                      "normalized": flag(.5), "special": flag(.4)})
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer(r) if r.random() < .6 else None,
            "pre_tokenizer": cut, "post_processor": None, "decoder": None, "model": model}


def forge_ids(forge, path, texts, folder):
    """The ids of each text, by the documents of a Megatron index; or what forge says."""
    lines, out = os.path.join(folder, "lines.jsonl"), os.path.join(folder, "out.bin")
    with open(lines, "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": t}) + "\n" for t in texts)
    done = subprocess.run([forge, "tokenize", lines, "--tokenizer", path, "--format", "megatron", "--output", out, "--threads", "1"], capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    with open(out[:-4] + ".idx", "rb") as f:
        head, lengths = struct.unpack("<9xQBQQ", f.read(34)), None
        lengths = np.frombuffer(f.read(4 * head[2]), dtype=np.int32)
    ids = np.fromfile(out, dtype={8: np.uint16, 4: np.int32}[head[1]])
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("forge")
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    base, drawn = trained(), [t for t in shapes.texts_of(shapes.corpus(400, options.seed)) if t]
    counts, good = collections.Counter(), True
    for i in range(options.files):
        r = random.Random(options.seed * 100003 + i)
        made = tokenizer_file(r, base)
        try:
            library = Tokenizer.from_str(json.dumps(made))
        except BaseException:  # what Rust throws is no Exception
            counts["the library doesn't load"] += 1
            continue
        texts, expected = [], []
        if library.normalizer:
            found_as = [library.normalizer.normalize_str(token["content"]) for token in made["added_tokens"] if token["normalized"]]
            if len(set(found_as)) < len(found_as):
                counts["tokens of one text, of which the library takes one by chance"] += 1
                continue
        for text in AWKWARD + r.sample(drawn, 40):
            try:
                ids = library.encode(text, add_special_tokens=False).ids
            except BaseException:
                counts["texts on which the library fails"] += 1
                continue
            if ids:  # a document without ids is none in an index
                expected.append(ids)
                texts.append(text)
        if not texts:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(made, f)
            got = forge_ids(options.forge, path, texts, folder)
        if isinstance(got, str) and "legal:" in got:
            counts["forge refuses"] += 1
        elif got == expected:
            counts["equal"] += 1
        else:
            good = False
            name = f"differs_{options.seed}_{i}.json"
            with open(name, "w", encoding="utf-8") as f:
                json.dump(made, f)
            wrong = got if isinstance(got, str) else next((t, a[:20], b[:20]) for t, a, b in zip(texts, got, expected) if a != b)
            print(f"{name}: DIFFERS: {wrong}; normalizer {made['normalizer']}, pre_tokenizer {made['pre_tokenizer']}, added {made['added_tokens']}", flush=True)
    print(", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    sys.exit(not good)


if __name__ == "__main__":
    main()
