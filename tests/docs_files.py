#!/usr/bin/env python3
"""docs_files.py [ROOT]: every source that the docs name by folder and name (`nn/block`, `optim/rule.hpp`, `config/keys*.cpp`) exists, and has the
function that the docs name behind it (`nn/block.cpp`: `forward`)."""

import re
import sys
from pathlib import Path


def stale(root):
    """Names in docs/**/*.md and README.md that no file or folder of src/ has, and how many there are."""
    folders = {folder.name for folder in (root / "src").iterdir() if folder.is_dir()}
    named, missing = 0, []
    for page in sorted([*root.glob("docs/**/*.md"), root / "README.md"]):
        for word in re.findall(r"`(?:src/)?([a-z]+/[a-z0-9_/*]+(?:\.plan)?(?:\.[hc]pp)?)`", page.read_text()):
            if word.split("/")[0] not in folders:
                continue
            named += 1
            if not any(root.glob(f"src/{word}")) and not any(root.glob(f"src/{word}.*")):
                missing.append(f"{page.relative_to(root)}: `{word}`")
    return named, missing


def without_function(root):
    """`file`: `function` of docs/**/*.md where the file has no such definition or declaration."""
    named, missing = 0, []
    for page in sorted(root.glob("docs/**/*.md")):
        for file, function in re.findall(r"`([a-z]+/[a-z0-9_/.]+\.[hc]pp)`: `([a-z_]+)`", page.read_text()):
            named += 1
            source = root / "src" / file
            if not source.exists() or not re.search(rf"^[^/]*[ :&*]{function}(<.*>)?\(.*[{{;,(]$", source.read_text(), re.M):
                missing.append(f"{page.relative_to(root)}: `{file}`: `{function}`")
    return named, missing


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    named, missing = stale(root)
    functions, without = without_function(root)
    for line in without:
        print(f"no such function in src/: {line}")
    for line in missing:
        print(f"no such file in src/: {line}")
    print(f"{named} names, {len(missing)} of no file; {functions} functions, {len(without)} not there")
    sys.exit(1 if missing or without or named < 60 or functions < 6 else 0)


if __name__ == "__main__":
    main()
