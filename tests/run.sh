#!/usr/bin/env bash
# tests/run.sh [--long] [CTEST OPTIONS]: installs what is missing, builds, and runs every test; ends with 0 when all of it
# passed. --long takes all tests, where a third is the default (docs/developer.md): hours.
#   1. cpu preset, warnings as errors: every test with one of the labels cpu, mpi, slurm, equivalence, verify, format, layering, docs.
#   2. asan preset: the tests that read untrusted files (deck, config.json, safetensors, token files, checkpoints), and 10 seconds of
#      libFuzzer on each of three kinds, where clang is (--long: a minute); FORGE_FUZZ_SECONDS for more.
#   3. cuda preset, where nvcc is: forge is compiled and linked for one architecture; where a GPU is too, with all tests for all
#      of the preset's architectures, and the tests run on it (label gpu). CUTLASS's kernels only there and with --long.
#   4. vgpu preset (docs/developer.md): the CUDA sources on an emulated GPU: each second test of kernels and networks, a sixth of verify, 16 to 18
#      layouts and a planted mistake, drawn by the commit. With --long all of the preset's tests and mistakes, and preset vgpu-tsan: its own threads under ThreadSanitizer.
#   5. with --long: the cpu preset by the oldest clang from 16 on that is here; it computes what g++'s does (labels of 1: kernels, verify).
#   6. with --long: the cpu preset under ThreadSanitizer: ranks as threads, checkpoints, and the soak (tests/soak.sh) for six minutes.
# JOBS sets how many compilers run at once (default: the cores); of tests it is two more. The last lines are what was skipped, and the wall
# and processor seconds of each part.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
jobs=${JOBS:-$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)}
untrusted=(config hf data checkpoint)

# Threads of tests that run side by side must not spin while they wait for each other.
export OMP_WAIT_POLICY=passive CTEST_OUTPUT_ON_FAILURE=1
# Two tests more than there are cores: many wait, for deadlines or a cluster of their own; those of several ranks, which count for
# two, take a third of two cores on the average.
slots=$((jobs + 2))
failed=() parts=() unity=ON
if [ "${1:-}" = --long ]; then
  export FORGE_LONG=1
  unity=OFF
  shift
else
  export FORGE_VOLUME=third
fi

# build PRESET [TARGETS…]
build() {
  local preset=$1
  shift
  local log=$root/build/$preset-configure.log
  cmake --preset "$preset" -DFORGE_WERROR=ON -DFORGE_TESTS=ON -DFORGE_UNITY="$unity" \
    ${architectures:+-DCMAKE_CUDA_ARCHITECTURES="$architectures"} ${cutlass:+-DFORGE_CUTLASS="$cutlass"} > "$log" 2>&1 || { cat "$log"; return 1; }
  cmake --build "build/$preset" -j "$jobs" ${1:+--target "$@"}
}

# The processor seconds of all that this shell has waited for, in $cpu.
count_cpu() {
  times > "$root/build/times"
  cpu=$(awk 'NR == 2 { for (i = 1; i <= 2; ++i) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] } printf "%d", sum }' "$root/build/times")
}

# step NAME COMMAND…: remembers a failure and goes on.
step() {
  local name=$1 start=$SECONDS cpu before result=passed
  shift
  count_cpu
  before=$cpu
  echo "== $name"
  if ! "$@"; then
    result=FAILED
    failed+=("$name")
  fi
  count_cpu
  parts+=("$(printf '%5d s, %5d s of processor time: %s, %s' $((SECONDS - start)) $((cpu - before)) "$name" "$result")")
  echo "== $name: $result after $((SECONDS - start)) s, $((cpu - before)) s of processor time"
}

run_asan() {
  local targets=() folder
  # Failing calls of a save, two minutes here: the cpu preset has them, too.
  [ "${FORGE_LONG:-}" = 1 ] || local -x GTEST_FILTER='-Saves/FailingCalls.*'
  for folder in "${untrusted[@]}"; do
    if [ -f "tests/$folder/CMakeLists.txt" ]; then targets+=("test_$folder"); fi
  done
  build asan "${targets[@]}" fuzz &&
    ctest --test-dir build/asan -j "$slots" -R "^($(IFS='|' && echo "${untrusted[*]}")|fuzz_.*)\$" --no-tests=error
}

run_cuda() {
  local cutlass=AUTO
  if command -v nvidia-smi > /dev/null && nvidia-smi -L > /dev/null 2>&1; then
    build cuda && ctest --test-dir build/cuda -L gpu --no-tests=error
  else
    echo "no GPU here: of the cuda preset forge is built, for one architecture"
    [ "${FORGE_LONG:-}" = 1 ] || cutlass=OFF  # a minute of a core
    architectures=90 build cuda forge && ctest --test-dir build/cuda -L nvcc --no-tests=error
  fi
}

run_vgpu() {
  local tests=(device kernels kernels_moe kernels_gemm kernels_attention kernels_attention_specialized kernels_fp8_matmul kernels_grouped_product nn vgpu comm_device_threads) targets=() chosen=()
  if [ "${FORGE_LONG:-}" != 1 ]; then
    local -x GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX
    GTEST_SHARD_INDEX=$(. tests/volume.sh && draw_below 2)
    targets=(forge "${tests[@]/#/test_}" test_sample nvtx_tool)
    chosen=(-R "^($(IFS='|' && echo "${tests[*]}")|sample_([248]|many)_ranks|sample_(overlap|pools|training|two_level)|kernels_fp8_matmul_sm_89|verify|vgpu_(steps|seeds|nccl_failure|precision|ranges)|app_(device_memory|shared_gpu))\$")
  fi
  build vgpu "${targets[@]}" || return 1
  FORGE_SAMPLE=$(git rev-parse HEAD 2> /dev/null || true) ctest --test-dir build/vgpu -j "$slots" --no-tests=error "${chosen[@]}" &&
    FORGE_VGPU_TIMEOUT_SECONDS=60 tests/mutations/drawn.sh build/vgpu device
}

# The emulated GPU's own threads. The sanitizer leaves room for few devices.
run_vgpu_tsan() {
  build vgpu-tsan test_vgpu &&
    FORGE_VGPU_DEVICES=4 FORGE_VGPU_MEMORY_GIB=1 build/vgpu-tsan/test_vgpu --gtest_filter='-Races.*'
}

# Cray's, AMD's and Intel's compilers are clang.
run_clang() {
  local compiler
  compiler=$(compgen -c clang++- | grep -E '^clang[+]{2}-(1[6-9]|[2-9][0-9])$' | sort -V | head -n 1)
  [ -n "$compiler" ] || { echo "no clang from 16 on here: nothing is built by it"; return 0; }
  cmake --preset cpu -B build/clang -DCMAKE_CXX_COMPILER="$compiler" -DFORGE_WERROR=ON -DFORGE_TESTS=ON -DFORGE_UNITY=ON &&
    cmake --build build/clang -j "$jobs" --target forge test_device test_kernels test_kernels_gemm test_kernels_attention &&
    ctest --test-dir build/clang -j "$slots" -R '^(device|kernels|kernels_gemm|kernels_attention|verify)$' --no-tests=error
}

# Ranks as threads, saves behind the steps and the watchdog under ThreadSanitizer; without a thread of libgomp's, which it doesn't know.
# Addresses are not drawn: those of newer kernels are in its way.
run_tsan() {
  local -x OMP_NUM_THREADS=1 TSAN_OPTIONS="halt_on_error=1 suppressions=$root/tests/tsan.supp"
  cmake --preset cpu -B build/tsan -DCMAKE_CXX_FLAGS='-fsanitize=thread -g1' -DFORGE_TESTS=ON -DFORGE_UNITY=ON &&
    cmake --build build/tsan -j "$jobs" --target forge test_comm_threads test_checkpoint &&
    setarch "$(uname -m)" -R ctest --test-dir build/tsan -j "$slots" -R "^(comm_threads|checkpoint)\$" --no-tests=error &&
    setarch "$(uname -m)" -R tests/soak.sh 0.1 --threads --fresh --forge build/tsan/forge --ledger build/tsan/soak/ledger.jsonl --work build/tsan/soak/runs
}

# find_cuda: puts nvcc on the PATH where it is installed in its usual place.
find_cuda() {
  command -v nvcc > /dev/null && return 0
  [ -x /usr/local/cuda/bin/nvcc ] || return 1
  export PATH=/usr/local/cuda/bin:$PATH
}

mkdir -p build
step "set-up" jobscripts/setup.sh --tests
[ "${#failed[@]}" -eq 0 ] || exit 1
step "build (cpu)" build cpu
step "untrusted files (asan)" run_asan
if find_cuda; then
  step "build (cuda)" run_cuda
else
  echo "== no nvcc here: the cuda preset is not built"
fi
step "an emulated GPU (vgpu)" run_vgpu
if [ "${FORGE_LONG:-}" = 1 ]; then step "threads of the emulated GPU (vgpu-tsan)" run_vgpu_tsan; fi
if [ "${FORGE_LONG:-}" = 1 ]; then step "build and kernels (clang)" run_clang; fi
if [ "${FORGE_LONG:-}" = 1 ]; then step "threads (tsan)" run_tsan; fi
if [ -x build/cpu/forge ]; then
  step "tests (cpu)" ctest --test-dir build/cpu -j "$slots" --no-tests=error "$@"
fi
# CTest says little of tests that are skipped; with CI=true they fail.
tests/skipped.sh build/cpu build/asan build/cuda build/vgpu || failed+=("tests were skipped")
printf '== %s\n' "${parts[@]}" "$(printf '%5d s in all, on %d cores' "$SECONDS" "$jobs")"
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
