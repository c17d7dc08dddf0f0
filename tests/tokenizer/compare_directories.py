#!/usr/bin/env python3
"""tests/tokenizer/compare_directories.py FORGE [--number N] [--seed S] [--write FILE]: ids of `forge tokenize --tokenizer DIR` against
those of transformers' AutoTokenizer (pip install transformers sentencepiece protobuf), on N drawn directories: a tokenizer.json or a
tokenizer.model of tests/tokenizer/data/directories.json with a tokenizer_config.json, special_tokens_map.json and added_tokens.json that
name added tokens. --write: keeps the drawn directories with transformers' ids as cases of directories_test.cpp. Ends with 1 where ids
differ."""
import argparse
import base64
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"
CASES = Path(__file__).parent / "data/directories.json"
NEW = ["<|im_start|>", "<|im_end|>", "<tool>", "</tool>", "<pad>", "<sep x>", "@@", "the", "<é>", "<s>", "</s>", "<unk>", "<|endoftext|>"]
TEXTS = ["<|im_start|>user the cat<|im_end|>", "the\n<|im_start|>  user  <|im_end|>  the", " the<tool>the</tool> the", "a@@b @@ <pad> <pad>",
         "<s>the</s> x <unk><|endoftext|>the", "  <é> é the<sep x>the "]


def token(draw, content):
    flags = {name: draw.random() < 0.3 for name in ("lstrip", "rstrip", "single_word", "normalized")}
    return {"content": content, **flags, "special": draw.random() < 0.5}


def draw_files(draw, base, kind):
    """The files beside a tokenizer whose vocabulary has so many ids."""
    size, own = base["size"], base["own"]
    config, files = {}, {}
    classes = {"byte": ["PreTrainedTokenizerFast", "TokenizersBackend", "GPT2Tokenizer", "GPT2TokenizerFast", "LlamaTokenizer"],
               "space": ["PreTrainedTokenizerFast", "LlamaTokenizerFast", "LlamaTokenizer"],
               "model": ["PreTrainedTokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast"]}
    config["tokenizer_class"] = draw.choice(classes[kind])
    for flag in ("legacy", "add_prefix_space", "split_special_tokens"):
        if draw.random() < (0.4 if flag != "split_special_tokens" else 0.1):
            config[flag] = draw.random() < 0.5
    names = draw.sample(NEW, draw.randint(1, 6))
    if draw.random() < 0.6:
        decoder = {str(o["id"]): {k: v for k, v in o.items() if k != "id"} for o in own if draw.random() < 0.7}
        for key in decoder:
            if draw.random() < 0.4:
                decoder[key] = token(draw, decoder[key]["content"])
        taken = {v["content"] for v in decoder.values()}
        decoder.update({str(size + len(own) + i): token(draw, n) for i, n in enumerate(n for n in names if n not in taken)})
        config["added_tokens_decoder"] = decoder
    else:
        if draw.random() < 0.6:
            files["added_tokens.json"] = {n: size + len(own) + i for i, n in enumerate(names)}
        if draw.random() < 0.6:
            special = {"eos_token": draw.choice(names), "pad_token": token(draw, draw.choice(names))}
            special["pad_token"].pop("special")
            if draw.random() < 0.5:
                special["additional_special_tokens"] = draw.sample(NEW, 2)
            files["special_tokens_map.json"] = special
    for key in ("bos_token", "eos_token", "unk_token", "pad_token", "image_token"):
        if draw.random() < 0.25:
            config[key] = draw.choice(NEW)
            if draw.random() < 0.3 and key != "image_token":
                config[key] = {"__type": "AddedToken", **token(draw, config[key])}
    if draw.random() < 0.3:
        config[draw.choice(["additional_special_tokens", "extra_special_tokens"])] = draw.sample(NEW, 2)
    files["tokenizer_config.json"] = config
    return {name: json.dumps(value) for name, value in files.items()}


def write_directory(bases, case, folder):
    os.makedirs(folder)
    base = bases[case["base"]]
    if base["file"] == "tokenizer.model":
        Path(folder, "tokenizer.model").write_bytes(base64.b64decode(base["text"]))
    else:
        Path(folder, base["file"]).write_text(base["text"])
    for name, text in case["files"].items():
        Path(folder, name).write_text(text)


def forge_ids(forge, folder, text):
    Path(folder, "text.txt").write_text(text, encoding="utf-8", newline="")
    done = subprocess.run([forge, "tokenize", f"{folder}/text.txt", "--tokenizer", folder, "--output", f"{folder}/o.bin", "--format", "uint32"],
                          capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1:]
    return list(map(int, np.fromfile(f"{folder}/o.bin", dtype=np.uint32)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("forge")
    parser.add_argument("--number", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write")
    options = parser.parse_args()
    from transformers import AutoTokenizer
    kept = json.loads(CASES.read_text())
    bases, draw, bad, cases = kept["bases"], random.Random(options.seed), 0, []
    with tempfile.TemporaryDirectory() as work:
        for number in range(options.number):
            name = draw.choice(list(bases))
            case = {"base": name, "files": draw_files(draw, bases[name], bases[name]["kind"])}
            folder = os.path.join(work, str(number))
            write_directory(bases, case, folder)
            try:
                theirs = AutoTokenizer.from_pretrained(folder)
                case["ids"] = [theirs(text, add_special_tokens=False).input_ids for text in TEXTS]
            except Exception as error:  # nothing to compare with
                print(f"{number}: transformers: {type(error).__name__}: {str(error)[:100]}")
                continue
            cases.append(case)
            for text, ids in zip(TEXTS, case["ids"]):
                mine = forge_ids(options.forge, folder, text)
                if mine != ids:
                    bad += 1
                    print(f"{number} ({name}): DIFFERS for {text!r}: forge {mine}, transformers {ids}\n  {case['files']}")
                    break
    print(f"{len(cases)} directories, {bad} differ")
    if options.write:
        Path(options.write).write_text(json.dumps({"texts": TEXTS, "bases": bases, "cases": cases}, indent=0, ensure_ascii=False) + "\n")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
