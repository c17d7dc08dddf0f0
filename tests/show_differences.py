#!/usr/bin/env python3
"""show_differences.py THEIRS OURS: where two files of `forge show --json` differ, a line for each of the first 20, and
exit code 1 where they do. Keys of the deck that only one of them has are no difference: a commit removes or adds some."""
import json
import pathlib
import sys


def difference(place, theirs, ours):
    """(place, their value, our value) of each leaf that differs."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            if key in theirs and key in ours:
                yield from difference(f"{place}.{key}", theirs[key], ours[key])
            elif not place.startswith(".deck"):
                yield f"{place}.{key}", theirs.get(key, "nothing"), ours.get(key, "nothing")
    elif isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            yield place, f"{len(theirs)} elements", f"{len(ours)}"
        for i, (their, our) in enumerate(zip(theirs, ours)):
            yield from difference(f"{place}[{i}]", their, our)
    elif theirs != ours:
        yield place, theirs, ours


def main():
    texts = [pathlib.Path(name).read_text() for name in sys.argv[1:3]]
    if texts[0] == texts[1]:
        return 0
    try:
        found = list(difference("", *map(json.loads, texts)))
    except json.JSONDecodeError:  # an error's message
        found = [("", *texts)]
    for place, theirs, ours in found[:20]:
        print(f"  {place[1:]}: {str(theirs)[:200]}, now {str(ours)[:200]}")
    return min(len(found), 1)


sys.exit(main())
