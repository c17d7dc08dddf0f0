#!/usr/bin/env python3
"""sass.py CUOBJDUMP NVDISASM ARCHITECTURE OBJECT…: what nvcc made of the kernels in these objects, for sm_ARCHITECTURE. No GPU is
needed. Ends with 1, and says what is wrong, unless

  every kernel of attention by tensor cores multiplies by HMMA, and copies its tiles from device memory 16 bytes at a time;
  none of them keeps registers in local memory (spills), or divides numbers of 64 bits;
  all kernels that this file expects are there.

Prints what each of them takes: registers, HMMA instructions, all instructions. --list prints that for every kernel of the objects, and
judges none. Tools that are missing: "SKIPPED", code 77."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

# Kernels of which there must be some, by their plain names.
EXPECTED = ["attention_mma forward_kernel", "attention_mma keys_kernel", "attention_mma queries_kernel"]


def output_of(*command, folder=None):
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def plain(mangled):
    """attention_mma forward_kernel<128,128,2,64,32,0> of a kernel's symbol; others by their symbol."""
    found = re.search(r"attention_mma.*?(forward_kernel|keys_kernel|queries_kernel)(.*?)EEEv", mangled)
    if not found:
        return mangled
    return f"attention_mma {found[1]}<{','.join(re.findall(r'L[ib](-?[0-9]+)E', found[2] + 'E'))}>"


def functions(cuobjdump, nvdisasm, architecture, path):
    """{kernel: its instructions} of an object."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        output_of(cuobjdump, "-arch", f"sm_{architecture}", "-xelf", "all", os.path.abspath(path), folder=folder)
        for cubin in sorted(os.listdir(folder)):
            name = None
            for line in output_of(nvdisasm, "-c", os.path.join(folder, cubin)).splitlines():
                if start := re.match(r"\.text\.(\S+):", line):
                    name = start[1]
                    found[name] = []
                elif name and (instruction := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line)):
                    found[name].append(instruction[1])
    return found


def registers(instructions):
    return 1 + max((int(r) for line in instructions for r in re.findall(r"\bR([0-9]+)\b", line)), default=-1)


def problems(instructions):
    def count(pattern):
        return sum(re.search(pattern, line) is not None for line in instructions)

    if not count(r"\bHMMA\b"):
        yield "no HMMA"
    if not count(r"\b(LDG\.E|LDGSTS\.E(\.BYPASS)?)\.(LTC128B\.)?128\b"):
        yield "no copies of 16 bytes from device memory"
    if spills := count(r"\b(STL|LDL)\b"):
        yield f"{spills} accesses to local memory"
    if divisions := count(r"CALL.*(div|rem)_[su]64"):
        yield f"{divisions} divisions of 64 bits"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--list"]
    cuobjdump, nvdisasm, architecture, *objects = arguments
    for tool in (cuobjdump, nvdisasm):
        if not shutil.which(tool):
            print(f"SKIPPED: SASS of the kernels: {tool} is missing (packages nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm of PyPI, or the toolkit's)")
            sys.exit(77)
    kernels = {}
    for path in objects:
        kernels.update({plain(k): i for k, i in functions(cuobjdump, nvdisasm, architecture, path).items()})
    failed = False
    for name, instructions in sorted(kernels.items()):
        wrong = [] if "--list" in sys.argv else list(problems(instructions))
        failed = failed or bool(wrong)
        hmma = sum("HMMA" in line for line in instructions)
        print(f"{name:60} {registers(instructions):3} registers, {hmma:4} HMMA, {len(instructions):6} instructions", *wrong, sep="; " if wrong else "")
    for name in EXPECTED:
        if "--list" not in sys.argv and not any(k.startswith(name + "<") for k in kernels):
            print(f"{name}: no such kernel for sm_{architecture}")
            failed = True
    sys.exit(1 if failed else 0)


main()
