#!/usr/bin/env bash
# tests/layering.sh [ROOT]: the rules of docs/developer.md that a compiler doesn't check. Prints every violation as
# file:line: text, and ends with 1 when there is one.
#  - A folder of src/ includes only itself and what stands to its left in the list below; some pairs are forbidden besides.
#    The pure half of a layer, nn/NAME.plan.*, stands behind fp8/: no MPI, no device.
#  - A third-party header is included only in its home.
#  - A backend's #if stands only in core/macros.hpp and device/; one of an instruction set also in kernels/. What a release of NCCL or
#    cuBLAS lacks is asked by its version, in its home.
#  - A namespace has one type of a name in all headers, but in pairs NAME_host.hpp and NAME_cuda.hpp: two would be one to the linker.
#  - A name stands in one folder of src/: NAME.hpp, NAME.cpp and NAME.plan.* together.
#  - No file has more than 400 lines; every source file is in its folder's list, and lists are explicit.
set -euo pipefail
export LC_ALL=C
cd "${1:-$(dirname "$0")/..}"

mapfile -t files < <(find src tests -type f \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) | sort)
[ "${#files[@]}" -gt 0 ] || { echo "layering: no source file under $PWD"; exit 1; }

check_lines() {
  awk '
    BEGIN {
      n = split("core config hf tokenizer text model fp8 nn.plan layout schedule plan device comm kernels nn parallel optim data checkpoint train predict report app explorer",
                order, " ")
      for (i = 1; i <= n; ++i) place[order[i]] = i
      # Pairs that the order allows and the design forbids.
      forbidden["kernels comm"]
      split("optim data checkpoint", siblings, " ")
      for (a in siblings) for (b in siblings) if (a != b) forbidden[siblings[a] " " siblings[b]]
      # What computes knows no plan; what runs a rank does.
      for (i = 1; i < n; ++i) if (order[i] !~ /^(plan|parallel|train|predict|app|explorer)$/) forbidden[order[i] " plan"]
      # Pattern of a header -> folders that may include it.
      home["^mpi[.]h$"] = "comm"
      # tests/vgpu has headers and a library of these names.
      home["^nccl[.]h$"] = "comm vgpu"
      home["^(cuda|cuda_[a-z0-9_]+|nvtx3/.*|nvToolsExt)[.]h(pp)?$"] = "device vgpu"
      home["^vgpu/"] = "device vgpu"
      home["^cublasLt[.]h$"] = "kernels vgpu"
      home["^(cublas_v2|cudnn|dnnl|oneapi/|cub/|cutlass/|cute/)"] = "kernels"
      home["^(hdf5|H5[A-Za-z]+)[.]h$"] = home["^openssl/"] = "checkpoint fuzz"  # tests/fuzz writes seeds
      home["^yaml-cpp/"] = "config"
      home["^nlohmann/"] = "hf"
      home["^boost/"] = "app"
      home["^(pcre2|utf8proc)[.]h$"] = "tokenizer"
      home["^(zlib|zstd)[.]h$"] = "text tokenizer"  # tests/tokenizer writes compressed files
      home["^omp[.]h$"] = "device kernels app"
      home["^(malloc|cupti)[.]h$"] = "tests"  # glibc, CUDA
      home["^(immintrin|x86intrin|cpuid)[.]h$"] = "device kernels"
      home["^emscripten[.]h$"] = "explorer"
      home["^g(test|mock)/"] = "tests"
      system_header = "^((sys|linux|arpa|netinet)/[a-z_]+|cxxabi|dlfcn|elf|execinfo|fcntl|ftw|glob|link|poll|pthread|pwd|sched|signal|spawn|termios|time|ucontext|unistd)[.]h$"
    }
    # The room of a file below src/, of the pure half of a layer its own.
    function room(name) { return name ~ /^nn\/.*[.]plan[.][hc]pp$/ ? "nn.plan" : substr(name, 1, index(name, "/") - 1) }
    function report(text) { print FILENAME ":" FNR ": " text; bad = 1 }
    FNR == 1 {
      split(FILENAME, part, "/")
      test = part[1] == "tests"
      folder = test ? part[2] : room(substr(FILENAME, 5))
      if (!test && !(folder in place)) report("src/" folder " is not a folder of the design")
    }
    FNR == 401 { report("the file has more than 400 lines") }
    /^[ \t]*#[ \t]*include[ \t]*["<]/ {
      name = $0
      sub(/^[ \t]*#[ \t]*include[ \t]*["<]/, "", name)
      sub(/[">].*/, "", name)
      split(name, target, "/")
      own = name ~ /\// && target[1] in place && $0 ~ /"/
      if (own) {
        if (test) next
        if (place[room(name)] > place[folder]) report(folder " includes " name ", which stands to its right")
        else if ((folder " " room(name)) in forbidden) report(folder " must not include " name)
        next
      }
      for (pattern in home)
        if (name ~ pattern) {
          if (index(" " home[pattern] (test ? " tests" : "") " ", " " (test && home[pattern] == "tests" ? "tests" : folder) " ") == 0)
            report("<" name "> belongs into " home[pattern] "/, not into " folder "/")
          next
        }
      if ($0 ~ /"/) {
        if (!test) report("\"" name "\" names no folder of src/")
        next
      }
      if (name ~ /[.\/]/ && name !~ system_header) report("<" name "> has no home in tests/layering.sh")
      next
    }
    /^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef)[^a-z]/ && !test {
      backend = $0 ~ /CUDA|NVCC|NVIDIA|HIP|NCCL|CUBLAS|CUDNN|DNNL|ONEDNN|FORGE_|OPEN_MPI|_OPENMP|MPI_VERSION/
      isa = $0 ~ /x86_64|__AVX|__AMX|__SSE|__FMA__|__aarch64__|__ARM/
      if (folder == "comm" && $0 ~ /^#if NCCL_VERSION_CODE >= [0-9]+$/) backend = 0
      if (folder == "kernels" && $0 ~ /^#if CUBLAS_VERSION >= [0-9]+$/) backend = 0
      if (backend && folder != "device" && FILENAME != "src/core/macros.hpp")
        report("a backend #if stands only in core/macros.hpp and device/")
      if (isa && folder != "device" && folder != "kernels" && FILENAME != "src/core/macros.hpp")
        report("an instruction set #if stands only in core/macros.hpp, device/ and kernels/")
    }
    END { exit bad }
  ' "$@"
}

# Types that a header of src/ defines at the margin, each with its namespace.
check_types() {
  find src -name '*.hpp' | sort | xargs awk '
    FNR == 1 { space = "" }
    /^namespace .*[{]$/ {
      outer[$2] = space
      space = space $2 "::"
    }
    /^}  \/\/ namespace / { space = outer[$4] }
    /^(struct|class|enum|enum class|union) [A-Za-z0-9_]+ .*[{]/ {
      name = space ($1 " " $2 == "enum class" ? $3 : $2)
      key = FILENAME
      sub(/_(host|cuda)[.]hpp$/, "", key)
      if (name in home && home[name] != key) { print FILENAME ":" FNR ": " name " is a type of " file[name] ", too"; bad = 1 }
      home[name] = key
      file[name] = FILENAME
    }
    END { exit bad }
  '
}

check_names() {
  find src -name '*.[hc]pp' | sort | awk -F/ '
    {
      stem = $NF
      sub(/([.]plan)?[.][hc]pp$/, "", stem)
      folder = substr($0, 1, length($0) - length($NF))
      if (stem in home && home[stem] != folder) { print $0 ": " home[stem] " has a " stem ", too"; bad = 1 }
      home[stem] = folder
    }
    END { exit bad }
  '
}

check_lists() {
  local bad=0 file list lists
  for file in "${files[@]}"; do
    case $file in src/*.cpp | src/*.cu | tests/*.cpp | tests/*.cu) ;; *) continue ;; esac
    list=$(dirname "$file")/CMakeLists.txt
    # Folders below one of src/ have no list of their own.
    if [[ $file == src/* ]]; then list=$(cut -d/ -f1,2 <<< "$file")/CMakeLists.txt; fi
    # A word of the list, not a part of one. What stands in tests/ itself is shared by the folders below it.
    lists=("$list")
    if [ "$(dirname "$file")" = tests ]; then lists=(tests/CMakeLists.txt tests/*/CMakeLists.txt); fi
    if ! grep -qsE "(^|[ (/])$(basename "$file" | sed 's/[.]/[.]/g')([ )]|$)" "${lists[@]}"; then
      echo "$file: is not in $list"
      bad=1
    fi
  done
  while read -r list; do
    if grep -qE 'file *\( *GLOB' "$list"; then
      echo "$list: file(GLOB); source lists are explicit"
      bad=1
    fi
  done < <(find src tests -name CMakeLists.txt)
  return $bad
}

status=0
check_lines "${files[@]}" || status=1
check_types || status=1
check_names || status=1
check_lists || status=1
[ $status -eq 0 ] && echo "layering: ${#files[@]} files keep the rules"
exit $status
