#!/usr/bin/env python3
"""old_headers.py BUILD: the host's half of the CUDA build compiles (-fsyntax-only) with the headers of the oldest CUDA and NCCL that forge
takes, which pip downloads once into BUILD, and CMake refuses an older NCCL. BUILD is one of the preset vgpu, whose commands say which
sources are the host's. Code 77 where PyPI can't be reached."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor

WHEELS = ["nvidia-nccl-cu12==2.18.3", "nvidia-cuda-runtime-cu12==12.4.127", "nvidia-cuda-nvcc-cu12==12.4.131",  # crt/ is beside nvcc
          "nvidia-cublas-cu12==12.4.5.8", "nvidia-cuda-cupti-cu12==12.4.127"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE = re.compile(r'#\s*include <(cuda|cublas|nccl)')


def headers_in(folder):
    """The include folders of the wheels, unpacked in `folder`."""
    done = folder / "done"
    if not done.exists():
        with tempfile.TemporaryDirectory() as wheels:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, *WHEELS]
            said = subprocess.run(command, capture_output=True, text=True, check=False)
            if said.returncode != 0:
                print("LEFT OUT: host code against old headers of CUDA and NCCL: pip download:", said.stderr.strip().split("\n")[-1])
                sys.exit(77)
            for wheel in pathlib.Path(wheels).glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(folder, [n for n in archive.namelist() if "/include/" in n])
        done.touch()
    return sorted(folder.glob("nvidia/*/include"))


def needs_device(path, seen):
    """Whether a source includes a header of CUDA's, itself or through the project's."""
    seen.add(path)
    text = path.read_text()
    own = [p for n in re.findall(r'^#include "([^"]+)"', text, re.M) for p in (ROOT / "src" / n, path.parent / n) if p.exists()]
    return bool(DEVICE.search(text)) or any(needs_device(p, seen) for p in own if p not in seen)


def sources_of(file):
    """Of a unit of sources that are compiled together, these."""
    if not file.name.startswith("unity_"):
        return [file]
    return [pathlib.Path(s) for s in re.findall(r'^#include "(/.*[.]cpp)"$', file.read_text(), re.M)]


def commands_of(build, includes):
    """(source, its folder and command) for real headers, of the sources of src/ that the host's compiler gets."""
    dropped = re.compile(r"-fsanitize=.*|--param=?|asan-.*|-DFORGE_VGPU=1|-I\S*/tests/vgpu/\S*|-c|-fno-omit-frame-pointer|-O\d")
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if "-D__CUDACC__" in words:
            continue
        output = words.index("-o")
        del words[output:output + 2]
        for source in sources_of(pathlib.Path(entry["file"])):
            if source.is_relative_to(ROOT / "src") and needs_device(source, set()):
                words_here = [str(source) if w == entry["file"] else w for w in words if not dropped.fullmatch(w)]
                found[source] = entry["directory"], [*words_here, "-fsyntax-only", *(w for i in includes for w in ("-isystem", str(i)))]
    return found


def refuses_old_nccl():
    """Whether CMake names the oldest NCCL to whoever has an older one."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if not nvcc:
        print("LEFT OUT: CMake's refusal of an old NCCL: no nvcc here")
        return True
    with tempfile.TemporaryDirectory() as build:
        header = pathlib.Path(build, "nccl.h")
        header.write_text("#define NCCL_MAJOR 2\n#define NCCL_MINOR 17\n#define NCCL_PATCH 1\n")
        said = subprocess.run(["cmake", "--preset", "cuda", "-B", build + "/cuda", f"-DCMAKE_CUDA_COMPILER={nvcc}", "-DFORGE_TESTS=OFF",
                               f"-DNCCL_INCLUDE_DIR={build}", f"-DNCCL_LIBRARY={build}/libnccl.so"], cwd=ROOT, capture_output=True, text=True, check=False)
        return said.returncode != 0 and "forge needs 2.18 or later" in re.sub(r"\s+", " ", said.stderr)


def main(build):
    build = pathlib.Path(build).resolve()
    includes = headers_in(build / "old_headers")
    commands = commands_of(build, includes)
    nccl = ROOT / "src/comm/nccl_communicator.cpp"
    directory, words = commands[nccl]
    times = ROOT / "tests/gpu/kernel_times.cpp"
    commands[times] = directory, [str(times) if w == str(nccl) else w for w in words]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        codes = list(pool.map(lambda c: subprocess.run(c[1], cwd=c[0], check=False).returncode, commands.values()))
    failed = [s for s, code in zip(commands, codes) if code != 0]
    print(f"{len(commands) - len(failed)} of {len(commands)} sources compile with {', '.join(WHEELS)}" + "".join(f"\nFAILED: {s}" for s in failed))
    if len(commands) < 20:
        sys.exit(f"{len(commands)} sources include CUDA's headers: they were not found")
    refused = refuses_old_nccl()
    if not refused:
        print("FAILED: CMake takes NCCL 2.17.1, or doesn't name the least")
    return bool(failed) or not refused


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
