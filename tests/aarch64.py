#!/usr/bin/env python3
"""aarch64.py BUILD: the compiler for aarch64, which Grace's processors have, reads every source of a CPU build without a warning
(-fsyntax-only). Headers of libraries are this machine's: they are the same but for what the compiler says of itself. Code 77 where there
is no such compiler."""
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

COMPILER = "aarch64-linux-gnu-g++"


def command_of(entry):
    words = shlex.split(entry["command"])
    output = words.index("-o")
    del words[output:output + 2]
    first = next(i for i, w in enumerate(words) if w.startswith("-"))  # a cache may stand before the compiler
    beside = [w for folder in ("/usr/local/include", "/usr/include", "/usr/include/x86_64-linux-gnu") for w in ("-idirafter", folder)]
    # -Wno-psabi: a note on how releases of g++ pass arguments.
    return [COMPILER, *(w for w in words[first:] if w != "-c"), *beside, "-Wno-psabi", "-fsyntax-only"]


def main(build):
    if not shutil.which(COMPILER):
        print(f"SKIPPED: sources for aarch64: no {COMPILER} here (package g++-aarch64-linux-gnu)")
        return 77
    entries = [e for e in json.loads((pathlib.Path(build) / "compile_commands.json").read_text()) if pathlib.Path(e["file"]).exists()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        codes = list(pool.map(lambda e: subprocess.run(command_of(e), cwd=e["directory"], check=False).returncode, entries))
    failed = [e["file"] for e, code in zip(entries, codes) if code != 0]
    print(f"{len(entries) - len(failed)} of {len(entries)} sources are right for aarch64" + "".join(f"\nFAILED: {f}" for f in failed))
    return bool(failed) or not entries


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
