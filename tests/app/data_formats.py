#!/usr/bin/env python3
"""data_formats.py TEXT DIRECTORY: the bytes of a text as token files of several formats, written from their descriptions with Python's own
modules: raw.bin, a Megatron pair, an llm.c file and a datatrove set of the same tokens; document ends (id 256) behind empty lines. Beside
them pairs.bin, the first of them cut into pairs of short texts."""
import array
import struct
import sys
from itertools import accumulate
from pathlib import Path

text, directory = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
documents = [list(part) + [256] for part in text.split(b"\n\n") if part]
ids = array.array("H", [token for document in documents for token in document])
lengths = [len(document) for document in documents]
starts = [0]
for length in lengths:
    starts.append(starts[-1] + length)

(directory / "raw.bin").write_bytes(ids.tobytes())


def write_megatron(name, lengths):
    starts = [2 * start for start in accumulate([0, *lengths[:-1]])]
    (directory / f"{name}.bin").write_bytes(ids[:sum(lengths)].tobytes())
    with open(directory / f"{name}.idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00")
        index.write(struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
        index.write(struct.pack(f"<{len(lengths)}i", *lengths))
        index.write(struct.pack(f"<{len(lengths)}q", *starts))
        index.write(struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1)))


# A mask of labels, as numpy.save writes it.
def write_mask(name, mask):
    shape = f"{{'descr': '|b1', 'fortran_order': False, 'shape': ({len(mask)},), }}"
    shape += " " * (117 - len(shape)) + "\n"
    (directory / name).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(shape)) + shape.encode() + mask)


write_megatron("megatron", lengths)
short = [16 + i * 7 % 16 for i in range(min(200, len(ids) // 64 * 2))]
write_megatron("pairs", short)
write_mask("pairs.mask.npy", b"".join(bytes([0] * 4 + [1] * (length - 4)) for length in short))

header = [20240520, 1, len(ids)] + [0] * 253
(directory / "llm_c.bin").write_bytes(struct.pack("<256i", *header) + ids.tobytes())

(directory / "trove.ds").write_bytes(ids.tobytes())
(directory / "trove.ds.index").write_bytes(struct.pack(f"<{len(lengths)}Q", *starts[1:]))
(directory / "trove.ds.metadata").write_text(f"bytes|2\n{len(ids)}\n{len(ids)}")

write_mask("mask.npy", bytes(64 < token < 123 for token in ids))  # letters are labels
