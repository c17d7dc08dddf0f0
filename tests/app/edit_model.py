#!/usr/bin/env python3
"""edit_model.py FROM TO [EDIT…]: a copy of a small Hugging Face directory whose weights stand in model.safetensors, changed. An edit is

    config KEY JSON      a key of config.json ("": the key goes)
    nan TENSOR           its last number is NaN; of BF16, F32 or F64
    drop TENSOR          a tensor that goes
    add TENSOR NAME      the tensor once more, under another name; its first number negated
    prefix OLD NEW       other beginnings of names
    pack                 experts' matrices in mlp.experts.gate_up_proj and down_proj, as transformers 5 has them in memory
    turn                 packed matrices the other way round, as Qwen3-VL's files have them
    nest MODEL_TYPE      config.json in text_config, and names behind model.language_model., as beside an image model
"""

import json
import re
import shutil
import struct
import sys
from pathlib import Path

BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}


def read(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    data = raw[8 + length :]
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def write(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, shape, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def packed(tensors):
    pattern = re.compile(r"(.*\.)(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight")
    usual = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
    rest, experts = {}, {}
    for name, tensor in tensors.items():
        if found := pattern.fullmatch(name):
            experts.setdefault(found[1], {})[int(found[2]), usual.get(found[3], found[3])] = tensor
        else:
            rest[name] = tensor
    for layer, matrices in experts.items():
        count = len(matrices) // 3
        kind, (rows, columns), _ = matrices[0, "gate_proj"]
        rest[layer + "mlp.experts.gate_up_proj"] = (
            kind, [count, 2 * rows, columns], b"".join(matrices[e, m][2] for e in range(count) for m in ("gate_proj", "up_proj")))
        rest[layer + "mlp.experts.down_proj"] = (
            kind, [count, columns, rows], b"".join(matrices[e, "down_proj"][2] for e in range(count)))
    return rest


def turned(tensors):
    new = dict(tensors)
    for name, (kind, (count, rows, columns), values) in ((n, t) for n, t in tensors.items() if len(t[1]) == 3):
        size = BYTES[kind]
        at = lambda e, r, c: ((e * rows + r) * columns + c) * size
        cells = (at(e, r, c) for e in range(count) for c in range(columns) for r in range(rows))
        new[name] = (kind, [count, columns, rows], b"".join(values[i : i + size] for i in cells))
    return new


def nested(tensors):
    inside = lambda name: name if name == "lm_head.weight" else "model.language_model." + name.removeprefix("model.")
    return {inside(name): tensor for name, tensor in tensors.items()}


def main():
    source, to, *edits = sys.argv[1:]
    shutil.copytree(source, to)
    to = Path(to)
    config = json.loads((to / "config.json").read_text())
    tensors = {}
    for path in sorted(to.glob("*.safetensors")):
        tensors |= read(path)
        path.unlink()
    (to / "model.safetensors.index.json").unlink(missing_ok=True)
    while edits:
        edit = edits.pop(0)
        if edit == "config":
            key, value = edits.pop(0), edits.pop(0)
            config.pop(key, None)
            if value:
                config[key] = json.loads(value)
        elif edit == "nan":
            name = edits.pop(0)
            kind, shape, values = tensors[name]
            tensors[name] = (kind, shape, values[: -BYTES[kind]] + b"\xff" * BYTES[kind])
        elif edit == "drop":
            del tensors[edits.pop(0)]
        elif edit == "add":
            kind, shape, values = tensors[edits.pop(0)]
            sign = BYTES[kind] - 1
            tensors[edits.pop(0)] = (kind, shape, values[:sign] + bytes([values[sign] ^ 0x80]) + values[sign + 1 :])
        elif edit == "prefix":
            old, new = edits.pop(0), edits.pop(0)
            tensors = {new + name[len(old) :] if name.startswith(old) else name: t for name, t in tensors.items()}
        elif edit == "pack":
            tensors = packed(tensors)
        elif edit == "turn":
            tensors = turned(tensors)
        elif edit == "nest":
            tied = config.pop("tie_word_embeddings", False)
            config = {"model_type": edits.pop(0), "text_config": config, "tie_word_embeddings": tied}
            config["text_config"]["model_type"] = config["model_type"] + "_text"
            tensors = nested(tensors)
        else:
            sys.exit(f"not an edit: {edit}")
    (to / "config.json").write_text(json.dumps(config))
    write(to / "model.safetensors", tensors)


if __name__ == "__main__":
    main()
