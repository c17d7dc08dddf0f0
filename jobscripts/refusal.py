"""How the Python scripts here end: one error and code 2 for bad input, code 5 for a file that can't be read or written."""
import argparse
import contextlib
import math
import sys


class Refused(Exception):
    """Bad input: a text for people."""


class Arguments(argparse.ArgumentParser):
    """Refuses bad arguments as the scripts refuse other input."""

    def error(self, message):
        raise Refused(message)


def whole(text):
    """A number of things, at least one."""
    if not (text.isascii() and text.isdigit() and 0 < int(text[:18]) and len(text) <= 18):
        raise argparse.ArgumentTypeError(f"{text}; legal: a whole number above 0")
    return int(text)


def between(low, high, unit):
    """The type of an option: a number above low, and at most high."""

    def number(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low < value <= high:
            raise argparse.ArgumentTypeError(f"{text}; legal: {unit}, more than {low:g} and at most {high:g}")
        return value

    return number


def counted(number, thing):
    """1 layout, 2 layouts."""
    return f"{number} {thing}" + ("" if number == 1 else "s")


@contextlib.contextmanager
def named(path):
    """Errors of the system in here name the file, also those that know none, as of a write on a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def ended(name, body):
    """The exit code of a script: what body() returns, 0 for None."""
    try:
        return body() or 0
    except Refused as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 5
