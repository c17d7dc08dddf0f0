#!/usr/bin/env bash
# tests/layering_selftest.sh: plants one violation after the other into a copy of the sources and sees that
# tests/layering.sh names it; and sees that lines which only look like one pass.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
failures=0

# A tree that keeps the rules, so that each planted line is the only violation.
fresh() {
  rm -rf "${copy:?}"/*
  for folder in core config hf model layout schedule plan device comm kernels nn parallel optim data checkpoint train app; do
    mkdir -p "$copy/src/$folder" "$copy/tests/$folder"
    printf '#pragma once\n' > "$copy/src/$folder/a.hpp"
    printf '#include "%s/a.hpp"\n#include <vector>\n#include <sys/stat.h>\n' "$folder" > "$copy/src/$folder/a.cpp"
    printf 'target_sources(forge_core PRIVATE a.cpp)\n' > "$copy/src/$folder/CMakeLists.txt"
  done
  printf '#include <gtest/gtest.h>\n#include "app/a.hpp"\n#include "files.hpp"\n' > "$copy/tests/core/a_test.cpp"
  printf 'forge_test(core a_test.cpp)\n' > "$copy/tests/core/CMakeLists.txt"
}

# plant FILE LINE: appends a line; expect TEXT: the check fails and says it; accept: it passes.
plant() { fresh && printf '%s\n' "$2" >> "$copy/$1"; }
expect() {
  local output status=0
  output=$("$here/layering.sh" "$copy" 2>&1) || status=$?
  if [ $status -ne 1 ] || ! grep -qF -- "$1" <<< "$output" || [ "$(wc -l <<< "$output")" -ne 1 ]; then
    printf 'expected exactly: %s\ngot (status %s):\n%s\n' "$1" "$status" "$output"
    failures=$((failures + 1))
  fi
}
accept() {
  local output
  if ! output=$("$here/layering.sh" "$copy" 2>&1); then
    printf 'expected no violation, got:\n%s\n' "$output"
    failures=$((failures + 1))
  fi
}

fresh && accept
plant src/core/a.cpp '#include "config/a.hpp"' && expect 'src/core/a.cpp:4: core includes config/a.hpp'
plant src/train/a.hpp '  #  include "app/a.hpp"' && expect 'train includes app/a.hpp'
plant src/kernels/a.cpp '#include "comm/a.hpp"' && expect 'kernels must not include comm/a.hpp'
plant src/nn/a.cpp '#include "plan/a.hpp"' && expect 'nn must not include plan/a.hpp'
plant src/checkpoint/a.cpp '#include "data/a.hpp"' && expect 'checkpoint must not include data/a.hpp'
plant src/data/a.cpp '#include "optim/a.hpp"' && expect 'data must not include optim/a.hpp'
for header in nn/a.hpp layout/a.hpp; do
  fresh && printf '#include "%s"\n' "$header" > "$copy/src/nn/a.plan.hpp"
  expect "nn.plan includes $header, which stands to its right"
done
fresh && printf '#include "model/a.hpp"\n' > "$copy/src/nn/a.plan.hpp"
printf '#include "nn/a.plan.hpp"\n' | tee -a "$copy/src/layout/a.cpp" >> "$copy/src/nn/a.cpp" && accept
plant src/model/a.cpp '#include "nn/a.plan.hpp"' && expect 'model includes nn/a.plan.hpp, which stands to its right'
plant src/core/a.cpp '#include "a.hpp"' && expect '"a.hpp" names no folder'
for pair in 'mpi.h train comm' 'nccl.h parallel comm' 'cuda_runtime.h kernels device' 'cublasLt.h nn kernels' \
  'oneapi/dnnl/dnnl.hpp parallel kernels' 'dnnl.h core kernels' 'hdf5.h app checkpoint' 'openssl/sha.h core checkpoint' \
  'yaml-cpp/yaml.h app config' 'nlohmann/json.hpp config hf' 'boost/program_options.hpp config app' \
  'omp.h nn device' 'immintrin.h nn device' 'gtest/gtest.h core tests'; do
  read -r header folder home <<< "$pair"
  plant "src/$folder/a.cpp" "#include <$header>" && expect "<$header> belongs into $home"
  if [ "$home" != tests ]; then plant "src/$home/a.cpp" "#include <$header>" && accept; fi
done
plant src/train/a.cpp '#include "mpi.h"' && expect '<mpi.h> belongs into comm/'
plant tests/core/a_test.cpp '#include <mpi.h>' && expect '<mpi.h> belongs into comm/, not into core/'
plant src/core/a.cpp '#include <bzlib.h>' && expect '<bzlib.h> has no home'
plant src/core/a.cpp '#include <zlib.h>' && expect '<zlib.h> belongs into data tokenizer/'
plant src/kernels/a.cpp '#ifdef FORGE_CUDA' && expect 'a backend #if stands only'
plant src/comm/a.cpp '#if defined(FORGE_NCCL)' && expect 'a backend #if stands only'
plant src/nn/a.cpp '#elif defined(__CUDACC__)' && expect 'a backend #if stands only'
plant src/device/a.cpp '#ifdef FORGE_CUDA' && accept
plant src/core/macros.hpp '#if defined(__CUDACC__)' && accept
plant src/nn/a.cpp '#if defined(__AVX512F__)' && expect 'an instruction set #if'
plant src/kernels/a.cpp '#if defined(__x86_64__)' && accept
plant src/core/b.cpp '#include <vector>' && expect 'src/core/b.cpp: is not in src/core/CMakeLists.txt'
plant tests/core/b_test.cpp '#include <vector>' && expect 'tests/core/b_test.cpp: is not in'
plant tests/b_main.cpp '#include <vector>' && expect 'tests/b_main.cpp: is not in'
plant tests/b_main.cpp '#include <vector>' && echo 'forge_test(core a_test.cpp ../b_main.cpp)' > "$copy/tests/core/CMakeLists.txt" && accept
plant src/extra.hpp '// nowhere' && expect 'is not a folder of the design'
plant src/core/a.cpp "$(seq -f '// %g' 400)" && expect 'the file has more than 400 lines'
plant src/core/a.cpp "$(seq -f '// %g' 397)" && accept
for line in 'struct Part {' 'class Part final : public Whole {' 'enum class Part { a };'; do
  fresh && printf 'namespace forge {\n%s\n' "$line" | tee "$copy/src/nn/a.hpp" > "$copy/src/train/a.hpp"
  expect 'src/train/a.hpp:2: forge::Part is a type of src/nn/a.hpp, too'
done
for folder in nn train; do printf 'namespace forge {\nnamespace %s {\nstruct Part {\n};\n}  // namespace %s\n' $folder $folder > "$copy/src/$folder/a.hpp"; done
printf 'struct Part<int> {\n};\n' | tee -a "$copy/src/nn/a.hpp" >> "$copy/src/train/a.hpp" && accept
printf 'struct Whole {\n' | tee "$copy/src/device/a_host.hpp" > "$copy/src/device/a_cuda.hpp" && accept
plant src/core/CMakeLists.txt 'file(GLOB sources *.cpp)' && expect 'GLOB'

[ $failures -eq 0 ] && echo 'layering: every planted violation was found'
exit $((failures > 0))
