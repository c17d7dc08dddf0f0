"""How the Python scripts here end: a sentence and code 2 for bad input, code 5 for a file that can't be read or written."""
import sys


class Refused(Exception):
    """Bad input: a text for people."""


def ended(name, body):
    """The exit code of a script: what body() returns, 0 for None."""
    try:
        return body() or 0
    except Refused as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 5
