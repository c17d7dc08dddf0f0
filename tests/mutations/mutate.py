#!/usr/bin/env python3
"""Planted mistakes (README.md):

  mutate.py check ROOT [FILE…]      does every mutation still fit the sources?
  mutate.py apply ROOT FILE         plants one
  mutate.py tests FILE              executables and filters, or scripts, that must notice it, a line each
  mutate.py says FILE               what they must say; nothing: any failure will do
  mutate.py environment FILE        variables that they run with
  mutate.py draw KEY NUMBER FILE…   so many of them, by the key
  mutate.py listed ROOT [PAGE]      has each a record that it was caught? PAGE: writes the table of all as Markdown
  mutate.py record FOLDER           takes what run.sh printed of this folder's mutations as their records
  mutate.py copy ROOT BUILD TO      a build with its sources as TO/source and TO/source/BUILD, paths and times kept, so
                                    that nothing in it is out of date

A mutation says in its first lines what it plants, then perhaps who must notice it, with which environment and in what words, its
record (the message that caught it when it was planted last), then what to change, as often as needed:

    tests: test_model InitialValues.*
    says: some words of the failure
    environment: NAME=value
    caught: loss 3.82 instead of 3.81
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
RECORD = re.compile(r"^caught: (\S.*)$", re.M)
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


def header(mutation: pathlib.Path):
    """The lines before the first change."""
    return mutation.read_text().partition("\nfile: ")[0] + "\n"


def listed(root, page=None):
    folder = pathlib.Path(root, "tests/mutations")
    mutations = sorted(folder.glob("**/*.mutation"))
    rows, missing = [], 0
    for mutation in mutations:
        records = RECORD.findall(header(mutation))
        if len(records) != 1:
            print(f"{mutation.stem}: {len(records)} lines caught: in its first lines, not one: plant it (run.sh), and record the message (mutate.py record)")
            missing += 1
            continue
        cells = str(mutation.relative_to(folder).with_suffix("")), header(mutation).split("\n\n")[0], records[0]
        rows.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |\n")
    if page and not missing:
        head = "# Planted mistakes, and the message that caught each when it was planted last\n\n| mutation | mistake | caught |\n|---|---|---|\n"
        pathlib.Path(page).write_text(head + "".join(rows))
    print(f"{len(mutations)} mutations, {len(rows)} with a record")
    return 0 if mutations and not missing else 1


def record(folder):
    """Of lines NAME caught: MESSAGE on standard input."""
    unknown = 0
    for name, message in re.findall(r"^ *(\w+) +caught: (\S.*)$", sys.stdin.read(), flags=re.M):
        mutation = pathlib.Path(folder, f"{name}.mutation")
        if not mutation.exists():
            print(f"{mutation} isn't there")
            unknown += 1
            continue
        first, mark, rest = mutation.read_text().partition("\nfile: ")
        first = RECORD.sub("", first + "\n").rstrip("\n")
        gap = "\n" if "\n\n" in first else "\n\n"
        mutation.write_text(f"{first}{gap}caught: {message.rstrip()}{mark}{rest}")
    return 1 if unknown else 0


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
    for name in ("src", "tests", "jobscripts", "verify"):
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
    verbs = {"check": (check, 1), "listed": (listed, 1), "record": (record, 1), "apply": (apply, 2), "says": (says, 1), "environment": (environment, 1), "draw": (draw, 3), "copy": (copy, 3)}
    if verb not in verbs or len(arguments) < verbs[verb][1]:
        sys.exit(__doc__)
    return verbs[verb][0](*arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
