#!/usr/bin/env bash
# tests/run.sh [CTEST OPTIONS]: installs what is missing, builds, and runs every test; ends with 0 when all of it passed.
#   1. cpu preset, warnings as errors: every test with one of the labels cpu, mpi, slurm, layouts, verify, format, layering.
#   2. asan preset: the tests that read untrusted files (deck, config.json, safetensors, token files, checkpoints), and a minute of
#      libFuzzer on checkpoints, where clang is; FORGE_FUZZ_SECONDS for more.
#   3. cuda preset, where nvcc is: everything is compiled and linked; where a GPU is too, the tests run on it (label gpu).
# JOBS sets how many compilers and tests run at once (default: the cores). The last lines are CTest's summary of the first.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
jobs=${JOBS:-$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)}
untrusted=(config data checkpoint)

# Threads of tests that run side by side must not spin while they wait for each other.
export OMP_WAIT_POLICY=passive CTEST_OUTPUT_ON_FAILURE=1
failed=()

# Warnings are errors, but not under sanitizers, where g++ warns of what cannot happen.
strict() { if [ "$1" = asan ]; then echo OFF; else echo ON; fi; }

# build PRESET [TARGETS…]
build() {
  local preset=$1
  shift
  local log=$root/build/$preset-configure.log
  mkdir -p "$root/build"
  cmake --preset "$preset" -DFORGE_WERROR="$(strict "$preset")" -DFORGE_TESTS=ON > "$log" 2>&1 || { cat "$log"; return 1; }
  cmake --build "build/$preset" -j "$jobs" ${1:+--target "$@"}
}

# step NAME COMMAND…: remembers a failure and goes on.
step() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  if "$@"; then
    echo "== $name: passed in $((SECONDS - start)) s"
  else
    echo "== $name: FAILED after $((SECONDS - start)) s"
    failed+=("$name")
  fi
}

run_asan() {
  local targets=() folder
  for folder in "${untrusted[@]}"; do
    if [ -f "tests/$folder/CMakeLists.txt" ]; then targets+=("test_$folder"); fi
  done
  build asan "${targets[@]}" fuzz &&
    ctest --test-dir build/asan -j "$jobs" -R "^($(IFS='|' && echo "${untrusted[*]}")|fuzz_.*)\$" --no-tests=error
}

run_cuda() {
  build cuda || return 1
  if command -v nvidia-smi > /dev/null && nvidia-smi -L > /dev/null 2>&1; then
    ctest --test-dir build/cuda -L gpu --no-tests=error
  else
    echo "no GPU here: the tests of the cuda preset are built, not run"
  fi
}

# find_cuda: puts nvcc on the PATH where it is installed in its usual place.
find_cuda() {
  command -v nvcc > /dev/null && return 0
  [ -x /usr/local/cuda/bin/nvcc ] || return 1
  export PATH=/usr/local/cuda/bin:$PATH
}

jobscripts/setup.sh --tests
step "build (cpu)" build cpu
step "untrusted files (asan)" run_asan
if find_cuda; then
  step "build (cuda)" run_cuda
else
  echo "== no nvcc here: the cuda preset is not built"
fi
if [ -x build/cpu/forge ]; then
  step "tests (cpu)" ctest --test-dir build/cpu -j "$jobs" --no-tests=error "$@"
fi
# CTest says little of tests that are skipped; with CI=true they fail.
tests/skipped.sh build/cpu build/asan build/cuda || failed+=("tests were skipped")
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
