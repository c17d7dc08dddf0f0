#!/usr/bin/env python3
"""row_notes.py [ROOT]: every kernel that kernels/kernels.hpp and kernels/experts/expert_kernels.hpp declare calls note_rows
(device/row_tape.hpp), so that the layout tests see its bytes. Prints those that don't, one a line, and ends with 1 where there is one.
"""
import pathlib
import re
import sys

# No pass of a layer lists them: they belong to initial values, the update, checks of a step, or to a kernel that stands beside them.
OTHERS = {"convert", "fill_normal", "fill_uniform", "sum_of_squares", "finish_scalars", "router_bias_update", "balanced_experts"}

kernels = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent) / "src/kernels"
declared = [name for header in ("kernels.hpp", "experts/expert_kernels.hpp")
            for name in re.findall(r"^void (\w+)\(Stream&", (kernels / header).read_text(), flags=re.M)]
sources = "\n".join(path.read_text() for folder in ("rows", "experts") for path in sorted((kernels / folder).glob("*.cpp")))
missing = []
for name in sorted(set(declared) - OTHERS):
    bodies = re.findall(rf"^void {name}\(.*?^}}", sources, flags=re.M | re.S)
    if not any("note_rows(" in body for body in bodies):
        missing.append(name)
        print(f"{name}: no note_rows")
if not missing:
    print(f"row_notes: {len(set(declared) - OTHERS)} kernels note their bytes")
sys.exit(bool(missing) or len(declared) < 40)
