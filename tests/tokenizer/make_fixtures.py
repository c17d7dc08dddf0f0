#!/usr/bin/env python3
"""tests/tokenizer/make_fixtures.py: makes tests/tokenizer/data anew (pip install tokenizers tiktoken sentencepiece): small tokenizers of
several shapes, trained by their libraries; texts.base64, a text a line; and for each tokenizer the ids that its library gives, a line a
text (expected.ids)."""
import base64
import json
import os
import shutil

import shapes

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
SIZE = 360


def rules(folder):
    """Few rules of normalisation: the library's own have a quarter of a megabyte."""
    name = "rules.tsv"
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        for source, target in (("ﬁ", "fi"), ("ﬂ", "fl"), ("①", "1"), ("…", "..."), ("e\u0301", "é"), ("\t", " "), ("\n", " "), ("\u3000", " "), ("Ⅳ", "IV")):
            f.write(" ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n")
    return {"normalization_rule_tsv": name}


FIXTURES = {name: shapes.SHAPES[name] for name in ("gpt2", "llama3", "qwen", "deepseek", "added_tokens", "behaviors", "llama2_json",
                                                   "tiktoken_cl100k")}
FIXTURES["t5_json"] = lambda texts, folder, size: shapes.unigram_json(texts, folder, size, **rules(folder))
FIXTURES["llama2_model"] = lambda texts, folder, size: shapes.sentencepiece(
    "bpe", texts, folder, size + 160, "identity", byte_fallback=True, remove_extra_whitespaces=False, user_defined_symbols=["[INST]"])
FIXTURES["t5_model"] = lambda texts, folder, size: shapes.sentencepiece("unigram", texts, folder, size, **rules(folder))


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    train = [" ".join(shapes.ENGLISH[(7 * i + j) % len(shapes.ENGLISH)] for j in range(12)) for i in range(200)]
    lines = [data for data in shapes.corpus(400, 11) if data][:60]
    texts = shapes.texts_of(lines)
    for name, make in FIXTURES.items():
        folder = os.path.join(HERE, name)
        os.makedirs(folder)
        path, more, encode = make(train, folder, SIZE)
        if path.endswith(".json"):
            with open(path, encoding="utf-8") as f:
                value = json.load(f)
            with open(path, "w", encoding="utf-8") as f:
                json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
        for extra in os.listdir(folder):
            if not os.path.join(folder, extra) == path:
                os.remove(os.path.join(folder, extra))
        if more:
            with open(path + ".pattern", "w", encoding="utf-8") as f:
                f.write({"cl100k_base": shapes.CL100K, "o200k_base": shapes.O200K}[more[1]] + "\n")
        with open(os.path.join(folder, "expected.ids"), "w") as f:
            f.writelines(" ".join(map(str, ids)) + "\n" for ids in encode(texts))
    with open(os.path.join(HERE, "texts.base64"), "w") as f:
        f.writelines(base64.b64encode(data).decode() + "\n" for data in lines)


main()
