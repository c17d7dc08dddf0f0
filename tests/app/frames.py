#!/usr/bin/env python3
"""frames.py PROGRAM: no function of the program has a frame above 64 KiB, by its code (objdump): threads may have stacks of 512 KiB.
As -Wframe-larger-than=65536, of what was inlined and linked."""

import re
import shutil
import subprocess
import sys

MOST = 65536


def main():
    if not shutil.which("objdump"):
        print("frames: there is no objdump")
        sys.exit(77)
    listing = subprocess.Popen(["objdump", "-d", "-C", "--no-show-raw-insn", sys.argv[1]], stdout=subprocess.PIPE, text=True, errors="replace")
    # The frame's size is taken at once, or, with -fstack-clash-protection, its end is computed first.
    taken = re.compile(r"sub +\$0x([0-9a-f]+),%rsp|lea +-0x([0-9a-f]+)\(%rsp\),%r11")
    function, found, frames = "", 0, {}
    for line in listing.stdout:
        if line.endswith(">:\n"):
            function = line
        elif match := taken.search(line):
            found += 1
            size = int(match[1] or match[2], 16)
            if MOST < size < 2**31:
                frames[function] = size
    if listing.wait() != 0 or found < 1000:
        sys.exit(f"frames: objdump shows {found} frames")
    for function, size in sorted(frames.items(), key=lambda item: -item[1]):
        print(f"{size} B: {function.strip()}")
    print(f"{found} frames, {len(frames)} above {MOST} B")
    sys.exit(1 if frames else 0)


if __name__ == "__main__":
    main()
