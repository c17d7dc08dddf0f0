#!/usr/bin/env python3
"""data_formats.py TEXT DIRECTORY: the bytes of a text as token files of several formats, written from their descriptions with Python's own
modules: raw.bin, a Megatron pair, an llm.c file and a datatrove set of the same tokens; document ends (id 256) behind empty lines."""
import array
import struct
import sys
from pathlib import Path

text, directory = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
documents = [list(part) + [256] for part in text.split(b"\n\n") if part]
ids = array.array("H", [token for document in documents for token in document])
lengths = [len(document) for document in documents]
starts = [0]
for length in lengths:
    starts.append(starts[-1] + length)

(directory / "raw.bin").write_bytes(ids.tobytes())

(directory / "megatron.bin").write_bytes(ids.tobytes())
with open(directory / "megatron.idx", "wb") as index:
    index.write(b"MMIDIDX\x00\x00")
    index.write(struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
    index.write(struct.pack(f"<{len(lengths)}i", *lengths))
    index.write(struct.pack(f"<{len(lengths)}q", *[2 * start for start in starts[:-1]]))
    index.write(struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1)))

header = [20240520, 1, len(ids)] + [0] * 253
(directory / "llm_c.bin").write_bytes(struct.pack("<256i", *header) + ids.tobytes())

(directory / "trove.ds").write_bytes(ids.tobytes())
(directory / "trove.ds.index").write_bytes(struct.pack(f"<{len(lengths)}Q", *starts[1:]))
(directory / "trove.ds.metadata").write_text(f"bytes|2\n{len(ids)}\n{len(ids)}")

# A mask that keeps letters as labels, as numpy.save writes it.
mask = bytes(64 < token < 123 for token in ids)
shape = f"{{'descr': '|b1', 'fortran_order': False, 'shape': ({len(mask)},), }}"
shape += " " * (117 - len(shape)) + "\n"
(directory / "mask.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(shape)) + shape.encode() + mask)
