#!/usr/bin/env python3
"""list_tests.py BUILD LABEL: the tests of a build that have the label and are one of its executables or a script of tests/,
as lines "name command…", for a machine without ctest; "name absent why" where an executable isn't built. Paths below the
current folder are written relative to it."""

import json
import os
import subprocess
import sys


def main():
    build, label = sys.argv[1:3]
    listing = ["ctest", "--test-dir", build, "--show-only=json-v1", "-L", f"^{label}$"]
    done = subprocess.run(listing, capture_output=True, text=True, check=True)
    root = os.getcwd() + os.sep
    for test in json.loads(done.stdout)["tests"]:
        command = [word.replace(root, "") for word in test.get("command", [])]
        if not command:
            print(test["name"], "absent its executable is not built")
        elif os.path.basename(command[0]).startswith("test_") or command[0].startswith("tests/"):
            environment = [p["value"] for p in test.get("properties", []) if p["name"] == "ENVIRONMENT"]
            words = ["env", *environment[0]] if environment else []
            print(test["name"], *words, *command)


if __name__ == "__main__":
    main()
