#!/usr/bin/env python3
"""mutate.py check ROOT [FILE…]: does every mutation still fit the sources?   mutate.py apply ROOT FILE: plant one.

A mutation says in its first lines what it plants, then what to change, as often as needed:

    file: src/some/file.cpp
    <<<<
    text that stands in the file exactly once
    ====
    what stands there instead
    >>>>
"""
import pathlib
import re
import sys

CHANGE = re.compile(r"<<<<\n(.*?)\n====\n(.*?)\n?>>>>", re.S)


def changes_of(mutation: pathlib.Path):
    """[(file, old, new)] of a mutation."""
    text = mutation.read_text()
    parts = re.split(r"^file: (\S+)\n", text, flags=re.M)
    changes = [(name, old, new) for name, body in zip(parts[1::2], parts[2::2]) for old, new in CHANGE.findall(body)]
    if not changes or not parts[0].strip():
        raise ValueError("names no change, or doesn't say what it plants")
    return changes


def mutated(root: pathlib.Path, mutation: pathlib.Path):
    """{file: its text with the mutation}."""
    texts = {}
    for name, old, new in changes_of(mutation):
        text = texts.get(name, (root / name).read_text())
        if text.count(old) != 1:
            raise ValueError(f"{name} has this text {text.count(old)} times, not once:\n{old}")
        if old == new:
            raise ValueError(f"{name}: nothing changes")
        texts[name] = text.replace(old, new)
    return texts


def main(verb, root, *mutations):
    failed = False
    if verb == "check" and not mutations:
        mutations = sorted(pathlib.Path(root).glob("tests/mutations/*.mutation"))
    for mutation in map(pathlib.Path, mutations):
        try:
            texts = mutated(pathlib.Path(root), mutation)
        except (ValueError, OSError) as error:
            print(f"{mutation.stem} no longer applies: {error}")
            failed = True
            continue
        if verb == "apply":
            for name, text in texts.items():
                (pathlib.Path(root) / name).write_text(text)
    if verb == "check" and not failed:
        print(f"{len(mutations)} mutations apply")
    return 1 if failed or not mutations else 0


if __name__ == "__main__":
    if len(sys.argv) < (4 if sys.argv[1:2] == ["apply"] else 3) or sys.argv[1] not in ("check", "apply"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
