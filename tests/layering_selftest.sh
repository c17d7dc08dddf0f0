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
  for folder in core config hf tokenizer text model layout schedule plan device comm kernels nn parallel optim data checkpoint train predict report app; do
    mkdir -p "$copy/src/$folder" "$copy/tests/$folder"
    printf '#pragma once\n' > "$copy/src/$folder/${folder}_a.hpp"
    printf '#include "%s/%s_a.hpp"\n#include <vector>\n#include <sys/stat.h>\n' "$folder" "$folder" > "$copy/src/$folder/${folder}_a.cpp"
    printf 'target_sources(forge_core PRIVATE %s_a.cpp)\n' "$folder" > "$copy/src/$folder/CMakeLists.txt"
  done
  printf '#include <gtest/gtest.h>\n#include "app/app_a.hpp"\n#include "files.hpp"\n' > "$copy/tests/core/a_test.cpp"
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
plant src/core/core_a.cpp '#include "config/config_a.hpp"' && expect 'src/core/core_a.cpp:4: core includes config/config_a.hpp'
plant src/train/train_a.hpp '  #  include "app/app_a.hpp"' && expect 'train includes app/app_a.hpp'
plant src/kernels/kernels_a.cpp '#include "comm/comm_a.hpp"' && expect 'kernels must not include comm/comm_a.hpp'
plant src/nn/nn_a.cpp '#include "plan/plan_a.hpp"' && expect 'nn must not include plan/plan_a.hpp'
plant src/checkpoint/checkpoint_a.cpp '#include "data/data_a.hpp"' && expect 'checkpoint must not include data/data_a.hpp'
plant src/data/data_a.cpp '#include "optim/optim_a.hpp"' && expect 'data must not include optim/optim_a.hpp'
for header in nn/nn_a.hpp layout/layout_a.hpp; do
  fresh && printf '#include "%s"\n' "$header" > "$copy/src/nn/nn_a.plan.hpp"
  expect "nn.plan includes $header, which stands to its right"
done
fresh && printf '#include "model/model_a.hpp"\n' > "$copy/src/nn/nn_a.plan.hpp"
printf '#include "nn/nn_a.plan.hpp"\n' | tee -a "$copy/src/layout/layout_a.cpp" >> "$copy/src/nn/nn_a.cpp" && accept
plant src/model/model_a.cpp '#include "nn/nn_a.plan.hpp"' && expect 'model includes nn/nn_a.plan.hpp, which stands to its right'
plant src/core/core_a.cpp '#include "a.hpp"' && expect '"a.hpp" names no folder'
for pair in 'mpi.h train comm' 'nccl.h parallel comm' 'cuda_runtime.h kernels device' 'cublasLt.h nn kernels' \
  'oneapi/dnnl/dnnl.hpp parallel kernels' 'dnnl.h core kernels' 'hdf5.h app checkpoint' 'openssl/sha.h core checkpoint' \
  'yaml-cpp/yaml.h app config' 'nlohmann/json.hpp config hf' 'boost/program_options.hpp config app' \
  'omp.h nn device' 'immintrin.h nn device' 'gtest/gtest.h core tests'; do
  read -r header folder home <<< "$pair"
  plant "src/$folder/${folder}_a.cpp" "#include <$header>" && expect "<$header> belongs into $home"
  if [ "$home" != tests ]; then plant "src/$home/${home}_a.cpp" "#include <$header>" && accept; fi
done
plant src/train/train_a.cpp '#include "mpi.h"' && expect '<mpi.h> belongs into comm/'
plant tests/core/a_test.cpp '#include <mpi.h>' && expect '<mpi.h> belongs into comm/, not into core/'
plant src/core/core_a.cpp '#include <bzlib.h>' && expect '<bzlib.h> has no home'
plant src/core/core_a.cpp '#include <zlib.h>' && expect '<zlib.h> belongs into text tokenizer/'
plant src/kernels/kernels_a.cpp '#ifdef FORGE_CUDA' && expect 'a backend #if stands only'
plant src/comm/comm_a.cpp '#if defined(FORGE_NCCL)' && expect 'a backend #if stands only'
plant src/nn/nn_a.cpp '#elif defined(__CUDACC__)' && expect 'a backend #if stands only'
plant src/device/device_a.cpp '#ifdef FORGE_CUDA' && accept
plant src/comm/comm_a.cpp '#if NCCL_VERSION_CODE >= 22700' && accept
plant src/nn/nn_a.cpp '#if NCCL_VERSION_CODE >= 22700' && expect 'a backend #if stands only'
plant src/core/macros.hpp '#if defined(__CUDACC__)' && accept
plant src/nn/nn_a.cpp '#if defined(__AVX512F__)' && expect 'an instruction set #if'
plant src/kernels/kernels_a.cpp '#if defined(__x86_64__)' && accept
plant src/core/b.cpp '#include <vector>' && expect 'src/core/b.cpp: is not in src/core/CMakeLists.txt'
plant tests/core/b_test.cpp '#include <vector>' && expect 'tests/core/b_test.cpp: is not in'
plant tests/b_main.cpp '#include <vector>' && expect 'tests/b_main.cpp: is not in'
plant tests/b_main.cpp '#include <vector>' && echo 'forge_test(core a_test.cpp ../b_main.cpp)' > "$copy/tests/core/CMakeLists.txt" && accept
plant src/extra.hpp '// nowhere' && expect 'is not a folder of the design'
plant src/core/core_a.cpp "$(seq -f '// %g' 400)" && expect 'the file has more than 400 lines'
plant src/core/core_a.cpp "$(seq -f '// %g' 397)" && accept
for line in 'struct Part {' 'class Part final : public Whole {' 'enum class Part { a };'; do
  fresh && printf 'namespace forge {\n%s\n' "$line" | tee "$copy/src/nn/nn_a.hpp" > "$copy/src/train/train_a.hpp"
  expect 'src/train/train_a.hpp:2: forge::Part is a type of src/nn/nn_a.hpp, too'
done
for folder in nn train; do printf 'namespace forge {\nnamespace %s {\nstruct Part {\n};\n}  // namespace %s\n' $folder $folder > "$copy/src/$folder/${folder}_a.hpp"; done
printf 'struct Part<int> {\n};\n' | tee -a "$copy/src/nn/nn_a.hpp" >> "$copy/src/train/train_a.hpp" && accept
printf 'struct Whole {\n' | tee "$copy/src/device/a_host.hpp" > "$copy/src/device/a_cuda.hpp" && accept
fresh && printf '#pragma once\n' > "$copy/src/plan/core_a.hpp" && expect 'src/plan/core_a.hpp: src/core/ has a core_a, too'
fresh && mkdir -p "$copy/src/kernels/rows" && printf '#include <vector>\n' > "$copy/src/kernels/rows/b.cpp"
expect 'src/kernels/rows/b.cpp: is not in src/kernels/CMakeLists.txt'
plant src/core/CMakeLists.txt 'file(GLOB sources *.cpp)' && expect 'GLOB'

[ $failures -eq 0 ] && echo 'layering: every planted violation was found'
exit $((failures > 0))
