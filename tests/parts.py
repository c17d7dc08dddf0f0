#!/usr/bin/env python3
"""parts.py BUILD: every executable of GoogleTest in a build is run by CTest, and where CTest runs parts of one, each of its
tests is in exactly one part. What it runs once more on another emulated GPU doesn't count."""
import json
import os
import pathlib
import re
import subprocess
import sys


def listed(program, *options):
    """Names of the tests that a choice of options runs."""
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    text = subprocess.run([program, "--gtest_list_tests", *options], env=environment, check=True, capture_output=True, text=True).stdout
    tests, suite = [], ""
    for line in text.splitlines():
        name = line.split("#")[0].rstrip()
        if re.fullmatch(r"\S+\.", name):
            suite = name
        elif suite and re.fullmatch(r"  \S+", name):
            tests.append(suite + name.strip())
    return tests


def problems(build):
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout
    commands = {}  # program -> [(name of the CTest, its options)]
    for test in json.loads(shown)["tests"]:
        words = test.get("command", [])
        environment = [value for p in test.get("properties", []) if p["name"] == "ENVIRONMENT" for value in p["value"]]
        if any(value.startswith("FORGE_VGPU_ARCH") for value in environment):
            continue
        for i, word in enumerate(words):
            if re.match(r"test_\w+$", os.path.basename(word)):
                commands.setdefault(os.path.realpath(word), []).append((test["name"], words[i + 1 :]))
                break
    programs = sorted(str(p.resolve()) for p in pathlib.Path(build).glob("test_*") if p.is_file() and os.access(p, os.X_OK))
    if len(programs) < 10:
        yield f"only {len(programs)} executables test_* under {build}"
    for program in programs:
        runs = commands.get(program, [])
        name = os.path.basename(program)
        if not runs:
            yield f"{name} is not run by CTest"
        parts = [(test, [o for o in options if o.startswith("--gtest_filter")]) for test, options in runs]
        if all(not choice for test, choice in parts):
            continue
        seen = {}
        for test, choice in parts:
            chosen = listed(program, *choice)
            if not chosen:
                yield f"{name}: {test} chooses nothing: {choice}"
            for case in chosen:
                seen.setdefault(case, []).append(test)
        for case in listed(program):
            if len(seen.get(case, [])) != 1:
                yield f"{name}: {case} is run by {' and '.join(seen.get(case, ['no test of CTest']))}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = list(problems(sys.argv[1]))
    print("\n".join(found) or "every test is run by CTest, once")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
