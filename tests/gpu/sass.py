#!/usr/bin/env python3
"""sass.py CUOBJDUMP NVDISASM ARCHITECTURE OBJECT…: what nvcc made of the kernels in these objects, for sm_ARCHITECTURE. No GPU is
needed. Ends with 1, and says what is wrong, unless

  no kernel divides numbers of 64 bits;
  every kernel of attention by tensor cores multiplies by HMMA, copies its tiles from device memory 16 bytes at a time, and keeps
  no registers in local memory (spills);
  every kernel of attention by warpgroups multiplies by HGMMA in code for sm_90a, with such copies and without spills, and
  where weights are to hide behind a product, computes them before it waits for it;
  every kernel of grouped products is as those of attention by tensor cores; those of rows also write their results 16 bytes at a time;
  every kernel over rows (ROWS) reads, or writes where it only writes, 16 bytes at a time, in each type, and spills nothing;
  all kernels that this file expects are there, those over rows in bf16.

Prints what each of them takes: registers, HMMA instructions, all instructions. --list prints that for every kernel of the objects, and
judges none. Tools that are missing: "SKIPPED", code 77."""

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile

# Kernels of which there must be some, by their plain names.
EXPECTED = ["attention_mma forward_kernel", "attention_mma keys_kernel", "attention_mma queries_kernel", "grouped_rows_kernel", "grouped_sums_kernel"]

# Functions whose kernels go over rows of numbers. Others go over indices and scalars.
ROWS = """accumulate add add_bias add_column_sums add_partial_sums apply_backward apply_forward attention_delta_of attention_merge blocks_to_columns
columns_to_blocks convert convert_rows copy_rows cross_entropy_from_statistics cross_entropy_in_place cross_entropy_rounded
cross_entropy_statistics embedding_backward embedding_forward gate_output gate_output_backward gate_rows gate_rows_backward gated_backward
gated_forward head_norm_backward_of head_norm_forward head_norm_in_halves in_rounded_blocks latent_keys_backward latent_keys_forward
layernorm_backward_of layernorm_forward_of permute_rows_of residual_add residual_layernorm_forward_of residual_rmsnorm_forward_of
rmsnorm_backward_of rmsnorm_forward_of rotary rotary_halves rotated_heads_backward_of round_nodes sum_into sum_of_squares transpose_blocks
unpermute_rows update_weights weighted_gated_backward weighted_gated_forward""".split()
NOT_IN_BF16 = {"add_partial_sums", "cross_entropy_in_place", "in_rounded_blocks", "sum_into", "sum_of_squares"}


def output_of(*command, folder=None):
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def identifiers(mangled):
    """(name, what follows it) of each name in a symbol; its length stands before it."""
    at = 0
    while found := re.compile(r"[1-9][0-9]*").search(mangled, at):
        end = found.end() + int(found[0])
        name = mangled[found.end():end]
        at = end if re.fullmatch(r"[A-Za-z_]\w*", name) else found.end()
        if at == end:
            yield name, mangled[end:]


def types_of(rest):
    """bf16, fp32 of the arguments of a template that come first; a substitution stands for the one class that is there."""
    rest = re.sub(r"^I(?:Lb[01]E)?N\w*?(Gelu|GeluTanh|Relu2|SiluGate|GeluTanhGate|ClampedGateI[fd]E)E", "I", rest)  # which activation
    found = re.match(r"I((?:NS_4bf16E|S[0-9A-Z]*_|L[ib][0-9]+E|[fd])+)", rest)
    words = re.findall(r"NS_4bf16E|S[0-9A-Z]*_|L[ib][0-9]+E|[fd]", found[1]) if found else []
    return [{"f": "fp32", "d": "fp64"}.get(word, "bf16") for word in words if not word.startswith("L")]


def plain(mangled):
    """attention_mma forward_kernel<128,128,2,64,32,0> of a kernel's symbol; gated_forward<bf16> of one over rows; others by
    their symbol."""
    found = re.search(r"attention_mma.*?specialized_(forward|keys|queries)_kernel(.*?)EEEv", mangled)
    if found:
        return f"attention_tasks {found[1]}<{','.join(re.findall(r'Li(-?[0-9]+)E', found[2] + 'E'))}>"
    found = re.search(r"attention_mma.*?(forward_kernel|keys_kernel|queries_kernel)(.*?)EEEv", mangled)
    if found:
        return f"attention_mma {found[1]}<{','.join(re.findall(r'L[ib](-?[0-9]+)E', found[2] + 'E'))}>"
    found = re.search(r"grouped_(rows|sums)_kernel(?:ILb([01])E)?", mangled)
    if found:
        return f"grouped_{found[1]}_kernel<{found[2] or ''}>"
    for name, rest in identifiers(mangled):
        if name in ROWS:
            return f"{name}<{','.join(types_of(rest))}>"
    return mangled


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


# Kernels of attention that compute exponentials while the last product runs. Those of keys have other products to start.
HIDDEN = re.compile(r"attention_tasks (?:forward|queries)<.*,([0-9]+)>")


def waits_early(instructions, tile):
    """Whether the wait for the last product stands ahead of the exponentials that it is to hide: between each wait for all
    but one, which has the scores, and the next one for all, there are those of a thread's scores, of a tile of so many rows."""
    waits = [i for i, line in enumerate(instructions) if "WARPGROUP.DEPBAR" in line]
    pairs = [(i, j) for i, j in zip(waits, waits[1:]) if "0x1" in instructions[i] and "0x0" in instructions[j]]
    return not any(sum("MUFU.EX2" in line for line in instructions[i:j]) >= tile // 2 for i, j in pairs)


def problems(name, instructions, architecture):
    def count(pattern):
        return sum(re.search(pattern, line) is not None for line in instructions)

    if divisions := count(r"CALL.*(div|rem)_[su]64"):
        yield f"{divisions} divisions of 64 bits"
    rows = name.split("<")[0] in ROWS
    hmma = name.startswith(("attention_mma", "grouped_"))
    hgmma = name.startswith("attention_tasks")
    if hgmma and not count(r"\bHGMMA\b"):
        yield "no HGMMA"
    if (hidden := HIDDEN.match(name)) and waits_early(instructions, int(hidden[1])):
        yield "waits for a product ahead of the exponentials that it is to hide"
    if (rows or hmma or hgmma) and (spills := count(r"\b(STL|LDL)\b")):
        yield f"{spills} accesses to local memory"
    if hmma and not count(r"\bHMMA\b"):
        yield "no HMMA"
    if (hmma or hgmma) and not count(r"\b(LDG\.E|LDGSTS\.E(\.BYPASS)?)\.(LTC128B\.)?128\b"):
        yield "no copies of 16 bytes from device memory"
    if name.startswith("grouped_rows") and not count(r"\bSTG\.E\.128\b"):
        yield "no writes of 16 bytes to device memory"
    if rows and not count(r"\b(LDG|STG)\.E\.(\w+\.)*128\b"):
        yield "no accesses of 16 bytes to device memory"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--list"]
    cuobjdump, nvdisasm, architecture, *objects = arguments
    for tool in (cuobjdump, nvdisasm):
        if not shutil.which(tool):
            print(f"SKIPPED: SASS of the kernels: {tool} is missing (packages nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm of PyPI, or the toolkit's)")
            sys.exit(77)
    failed, names = False, set()
    judges = "--list" not in sys.argv
    wanted = [(path, "90a" if "attention_specialized" in path else architecture) for path in objects]  # elsewhere those only trap
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as workers:
        found = workers.starmap(functions, [(cuobjdump, nvdisasm, code, path) for path, code in wanted], chunksize=1)
    for (path, code), symbols in zip(wanted, found):
        for symbol, instructions in sorted(symbols.items()):
            name = plain(symbol)
            names.add(name if code == architecture else f"{name} of sm_{code}")
            wrong = list(problems(name, instructions, code)) if judges else []
            failed = failed or bool(wrong)
            mma = sum("MMA" in line for line in instructions)
            of = "" if code == architecture else f" of sm_{code}"
            print(f"{name + of:60} {registers(instructions):3} registers, {mma:4} MMA, {len(instructions):6} instructions", *wrong,
                  sep="; " if wrong else "")
    for name in EXPECTED + [row for row in ROWS if row not in NOT_IN_BF16]:
        if judges and not any(k.startswith(name + "<") and (name in EXPECTED or "bf16" in k) for k in names):
            print(f"{name}: no such kernel for sm_{architecture}")
            failed = True
    for kernel in (f"attention_tasks {kernel}" for kernel in ("forward", "keys", "queries")):
        if judges and not any(name.startswith(f"{kernel}<") for name in names):
            print(f"{kernel}: no such kernel")
            failed = True
    sys.exit(1 if failed else 0)


main()
