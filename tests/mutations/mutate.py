#!/usr/bin/env python3
"""Planted mistakes (README.md):

  mutate.py check ROOT [FILE…]      does every mutation still fit the sources?
  mutate.py apply ROOT FILE         plants one
  mutate.py tests FILE              executables and filters, or scripts, that must notice it, a line each
  mutate.py says FILE               what they must say; nothing: any failure will do
  mutate.py environment FILE        variables that they run with
  mutate.py draw KEY NUMBER FILE…   so many of them, by the key
  mutate.py listed ROOT             does docs/mistakes.md have the mutations that there are, each once and caught?
  mutate.py copy ROOT BUILD TO      a build with its sources as TO/source and TO/source/BUILD, paths and times kept, so
                                    that nothing in it is out of date

A mutation says in its first lines what it plants, then perhaps who must notice it, with which environment and in what words, then
what to change, as often as needed:

    tests: test_model InitialValues.*
    says: some words of the failure
    environment: NAME=value
    file: src/some/file.cpp
    <<<<
    text that stands in the file exactly once
    ====
    what stands there instead
    >>>>
"""
import hashlib
import os
import pathlib
import re
import shutil
import sys

CHANGE = re.compile(r"<<<<\n(.*?)\n====\n(.*?)\n?>>>>", re.S)
TESTS = re.compile(r"^tests: (\S+ \S+)$", re.M)
USUAL = ["test_equivalence Quick.*", "test_equivalence NotFinite.*"]


def changes_of(mutation: pathlib.Path):
    """[(file, old, new)] of a mutation."""
    text = mutation.read_text()
    parts = re.split(r"^file: (\S+)\n", text, flags=re.M)
    changes = [(name, old, new) for name, body in zip(parts[1::2], parts[2::2]) for old, new in CHANGE.findall(body)]
    if not changes or not parts[0].strip():
        raise ValueError("names no change, or doesn't say what it plants")
    for line in re.findall(r"^tests:.*$", parts[0], flags=re.M):
        if not TESTS.fullmatch(line):
            raise ValueError(f"\"{line}\": legal is tests: PROGRAM FILTER, without further spaces")
    return changes


def tests_of(mutation: pathlib.Path):
    return TESTS.findall(mutation.read_text()) or USUAL


def says(mutation):
    for words in re.findall(r"^says: (.+)$", pathlib.Path(mutation).read_text(), flags=re.M):
        print(words)
    return 0


def environment(mutation):
    for setting in re.findall(r"^environment: (\S+=\S+)$", pathlib.Path(mutation).read_text(), flags=re.M):
        print(setting)
    return 0


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


def check(root, *mutations):
    failed = False
    mutations = mutations or sorted(pathlib.Path(root).glob("tests/mutations/**/*.mutation"))
    for mutation in map(pathlib.Path, mutations):
        try:
            mutated(pathlib.Path(root), mutation)
        except (ValueError, OSError) as error:
            print(f"{mutation.stem} no longer applies: {error}")
            failed = True
    if not failed:
        print(f"{len(mutations)} mutations apply")
    return 1 if failed or not mutations else 0


def listed(root):
    known = sorted(path.stem for path in pathlib.Path(root).glob("tests/mutations/**/*.mutation"))
    shown = sorted(re.findall(r"^    (\w+) +caught: \S", pathlib.Path(root, "docs/mistakes.md").read_text(), flags=re.M))
    for name in sorted(set(known) | set(shown)):
        if known.count(name) != shown.count(name):
            print(f"{name}: {known.count(name)} mutations of this name, docs/mistakes.md has it {shown.count(name)} times")
    print(f"{len(known)} mutations, {len(shown)} listed")
    return 0 if known and known == shown else 1


def apply(root, mutation):
    for name, text in mutated(pathlib.Path(root), pathlib.Path(mutation)).items():
        (pathlib.Path(root) / name).write_text(text)
    return 0


def drawn(key, number, files):
    """Sorted by a hash of key and name: any two are as likely as others."""
    return sorted(files, key=lambda f: hashlib.sha256(f"{key} {pathlib.Path(f).stem}".encode()).digest())[:number]


def draw(key, number, *mutations):
    print("\n".join(drawn(key, int(number), mutations)))
    return 0


def is_program(directory, name):
    """Executables of the build: made anew where they are wanted, and much the largest files."""
    path = pathlib.Path(directory, name)
    with_suffix = path.suffix in (".so", ".sh", ".py")
    return path.is_file() and os.access(path, os.X_OK) and not with_suffix


def copy(root, build, to):
    root, source = pathlib.Path(root).resolve(), pathlib.Path(to).resolve() / "source"
    source.mkdir(parents=True, exist_ok=True)
    for name in ("src", "tests", "jobscripts"):
        shutil.copytree(root / name, source / name, symlinks=True, dirs_exist_ok=True)
    for path in root.glob("CMake*"):
        shutil.copy2(path, source)
    made = source / build
    # Not the end of another path, nor the beginning of a name: /forge isn't in build/forge and CMakeFiles/forge.dir.
    root_path = re.compile(rb"(?:(?<=-[IL])|(?<![\w./-]))" + re.escape(str(root).encode()) + rb"(?![\w.-])")
    new_path = str(source).encode()
    leave = lambda directory, names: [n for n in names if n == "Testing" or is_program(directory, n)]
    shutil.copytree(root / build, made, symlinks=True, dirs_exist_ok=True, ignore=leave)
    for path in made.rglob("*"):
        if not path.is_file() or path.is_symlink() or path.suffix in (".o", ".a", ".so", ".gch"):
            continue
        before, data = path.stat(), path.read_bytes()
        new = root_path.sub(lambda _: new_path, data)
        if path.name in ("flags.make", "build.ninja"):  # a mistake may leave a variable without use
            new = new.replace(b" -Werror", b"")
        if new != data:
            path.write_bytes(new)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return 0


def main(verb="", *arguments):
    if verb == "tests" and len(arguments) == 1:
        print("\n".join(tests_of(pathlib.Path(arguments[0]))))
        return 0
    verbs = {"check": (check, 1), "listed": (listed, 1), "apply": (apply, 2), "says": (says, 1), "environment": (environment, 1), "draw": (draw, 3), "copy": (copy, 3)}
    if verb not in verbs or len(arguments) < verbs[verb][1]:
        sys.exit(__doc__)
    return verbs[verb][0](*arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
