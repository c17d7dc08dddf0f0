"""The program under test, for the scripts beside this one: its calls, what is expected of them, and the exit code."""
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

FORGE, ROOT = os.path.abspath(sys.argv[1]), Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
# The head of a script for verify/lm_eval_forge.py, with a stand-in for the package lm_eval.
LM_EVAL = """
import sys, types
class LM:
    def __init__(self): self.cache_hook = types.SimpleNamespace(add_partial=lambda *_: None)
for name, members in {"lm_eval": {}, "lm_eval.api": {}, "lm_eval.api.model": {"LM": LM},
                      "lm_eval.api.registry": {"register_model": lambda name: lambda c: c}}.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)
sys.path.insert(0, "verify")
"""
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)
        print("FAILED:", what, flush=True)


def run(*arguments, **variables):
    """(exit code, what it has printed)."""
    done = subprocess.run([FORGE, *map(str, arguments)], env={**os.environ, **variables}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def said(*arguments, code=0, **variables):
    """What it has printed, which must end with this code."""
    ended, output = run(*arguments, **variables)
    expect(ended == code, f"{arguments} ended with {ended}, not {code}:\n{output}")
    return output


@functools.cache
def has_thread_ranks():
    return "cuda" not in said("version").split("\n")[0]


def job(*arguments, code=0, fault=None, ranks=1, text=None):
    """(standard output, standard error) of so many ranks in the repository, which must end with this code; None: with any. text: standard input."""
    launcher = []
    if ranks > 1 and has_thread_ranks():
        arguments = [*arguments, "--ranks", str(ranks)]
    elif ranks > 1:
        launcher = ["mpirun", "--oversubscribe", "-n", str(ranks)]
    environment = {**ENVIRONMENT, **({"FORGE_FAULT": fault} if fault else {})}
    done = subprocess.run([*launcher, FORGE, *map(str, arguments)], cwd=ROOT, env=environment, input=text, capture_output=True, text=True)
    expect(code in (None, done.returncode), f"code {done.returncode}, not {code}: {arguments}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def rows_of(path):
    """Of JSON lines; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def sets(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def finish(text=""):
    print(f"{text}{len(failures)} failures")
    sys.exit(bool(failures))
