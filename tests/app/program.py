"""The program under test, for the scripts beside this one: its calls, what is expected of them, and the exit code."""
import os
import subprocess
import sys

FORGE = os.path.abspath(sys.argv[1])
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


def sets(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def finish(text=""):
    print(f"{text}{len(failures)} failures")
    sys.exit(bool(failures))
