"""tests/alone.py BUILD: headers, and sources that FORGE_UNITY compiles together, include what they need: twelve sources and as many
headers, drawn by the commit's hash, are read by the compiler one by one (-fsyntax-only); all of them with FORGE_LONG=1. Ends with 1
where one needs another.
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


DEVICE = re.compile(r'#include [<"](cuda|cub/|cublas|cudnn|cutlass|cute/|nccl|nvtx|vgpu/)')
KERNELS, GUARD = re.compile(r"__(device|global)__"), re.compile(r"#if.*(CUDACC|FORGE_CUDA|FORGE_DEVICE)")


def of_devices(text):
    return bool(DEVICE.search(text) or (KERNELS.search(text) and not GUARD.search(text)))


def headers_of(build, root):
    """The command that reads each header, with the options of a source of its half of the tree; those of devices are left to others."""
    options, libraries = {}, set()  # of libraries that some sources alone use, the folders of headers
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        libraries |= {b for a, b in zip(words, words[1:]) if a == "-isystem"}
        half = "tests" if any(re.fullmatch(r"-I.*/tests", w) for w in words) else "src" if f"-I{root}/src" in words else None
        if half and half not in options:
            options[half] = (entry["directory"], [w for w in words if not w.endswith((".o", ".cpp", ".cxx")) and w not in ("-c", "-o")])
    commands, text = {}, {p: p.read_text() for half in ("src", "tests") for p in (root / half).rglob("*.hpp") if "vgpu" not in p.parts}

    def needs_device(path, seen):
        names = re.findall(r'^#include "([^"]+)"', text[path], re.M)
        own = {p / n for p in (path.parent, root / "src", root / "tests") for n in names} & text.keys()
        seen.add(path)
        return of_devices(text[path]) or any(needs_device(p, seen) for p in own - seen)

    for path in sorted(text):
        if not needs_device(path, set()):
            directory, words = options[path.relative_to(root).parts[0]]
            more = [f"-I{folder}" for folder in (path.parent, root / "tests", root / "src")] if "tests" in path.parts else []
            commands[str(path)] = (directory, [*words, *more, *(word for folder in sorted(libraries) for word in ("-isystem", folder)), "-Wno-unused", "-fsyntax-only", "-x", "c++", "-include", str(path), "/dev/null"])
    return commands


def choose(commands):
    if os.environ.get("FORGE_LONG") == "1":
        return sorted(commands)
    shown = ["sh", "-c", "git rev-parse HEAD 2> /dev/null"]  # sources may have no repository, or the system no git
    head = subprocess.run(shown, capture_output=True, text=True, check=False).stdout.strip()
    return drawn(head or "no repository", NUMBER, sorted(commands))


def main(build):
    build, root = pathlib.Path(build), pathlib.Path(__file__).resolve().parent.parent
    bad = 0
    for kind, commands in (("sources", commands_of(build)), ("headers", headers_of(build, root))):
        if len(commands) < NUMBER:
            sys.exit(f"{build}: {len(commands)} {kind} can be read alone; was it configured with FORGE_UNITY=ON?")
        chosen = choose(commands)
        failed = [s for s in chosen if subprocess.run(commands[s][1], cwd=commands[s][0], check=False).returncode != 0]
        print(f"{len(chosen) - len(failed)} of {len(chosen)} {kind} compile alone" + "".join(f"\nFAILED: {s}" for s in failed))
        bad += len(failed)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
