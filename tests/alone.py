"""tests/alone.py BUILD: sources that FORGE_UNITY compiles together include what they need: twelve of them, drawn by the commit's
hash, are read by the compiler one by one (-fsyntax-only); all of them with FORGE_LONG=1. Ends with 1 where one needs another.
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "mutations"))
from mutate import drawn  # noqa: E402

NUMBER = 12


def commands_of(build):
    """The command that would compile each source alone: that of the unit which includes it."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if "/Unity/unity_" not in entry["file"]:
            continue
        words = shlex.split(entry["command"])
        output = words.index("-o")
        del words[output:output + 2]
        for source in re.findall(r'^#include "(.*[.]cpp)"$', pathlib.Path(entry["file"]).read_text(), re.M):
            command = [source if word == entry["file"] else word for word in words if word != "-c"]
            commands[source] = (entry["directory"], [*command, "-fsyntax-only"])
    return commands


def main(build):
    commands = commands_of(pathlib.Path(build))
    if len(commands) < NUMBER:
        sys.exit(f"{build}: {len(commands)} sources are compiled together; was it configured with FORGE_UNITY=ON?")
    chosen = sorted(commands)
    if os.environ.get("FORGE_LONG") != "1":
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
        chosen = drawn(head or "no repository", NUMBER, chosen)
    bad = [s for s in chosen if subprocess.run(commands[s][1], cwd=commands[s][0], check=False).returncode != 0]
    print(f"{len(chosen) - len(bad)} of {len(chosen)} sources compile alone" + "".join(f"\nFAILED: {s}" for s in bad))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
