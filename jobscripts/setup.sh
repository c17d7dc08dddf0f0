#!/usr/bin/env bash
# jobscripts/setup.sh [--tests | --cuda | --web]: installs what forge, its tests and the quickstart need on Debian 12, 13 or Ubuntu 24.04 (or later),
# as root, without questions. Needs no network when everything is there. Without root it names what is missing and how to
# get it; docs/start.md has the ways without a system package manager. --tests: also Slurm, of which some tests start a
# cluster of their own; without a configuration its daemons start nowhere else; git, by which some draw their share; and, where nvcc is, what --cuda brings.
# --cuda: also cuobjdump and nvdisasm, with which a test reads what nvcc made of the kernels. They come from PyPI's packages
# nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm by pip, into /usr/local/bin, or ~/.local/bin without root; and the headers of
# cuDNN's frontend, with which the CUDA build has attention by cuDNN, of the package nvidia-cudnn-frontend into
# /usr/local/include, or ~/.local/include, and there those of CUTLASS, of the package nvidia-cutlass.
# --web: also emscripten, which compiles the explorer (docs/choosing.md), and Chromium, in which its test reads the page.
#
# The CUDA Toolkit and NCCL are not installed: the cuda preset is for machines that have them.
set -euo pipefail

packages=(
  g++ cmake ninja-build make ccache                              # compiler and build
  libopenmpi-dev openmpi-bin                                     # MPI
  libhdf5-dev libssl-dev                                         # checkpoints
  libyaml-cpp-dev nlohmann-json3-dev libboost-program-options-dev  # deck, config.json, command line
  libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev            # tokenizers and compressed texts
  libdnnl-dev                                                    # oneDNN: matrix products on CPUs
  libgtest-dev                                                   # tests
  python3                                                        # pictures and reports in docs/
)
# Used where the distribution has it; the test that needs it says so when it is missing.
optional=(clang-format-14)
cuda=no
case ${1:-} in
  "") ;;
  --tests)
    optional+=(slurm-wlm munge iproute2 clang libclang-rt-dev environment-modules git clang-16 libomp-16-dev g++-aarch64-linux-gnu)
    if command -v nvcc > /dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then cuda=yes; fi
    ;;
  --cuda) cuda=yes ;;
  --web) optional+=(emscripten chromium) ;;
  *) echo "usage: jobscripts/setup.sh [--tests | --cuda | --web]" >&2 && exit 2 ;;
esac
if [ "$cuda" = yes ]; then optional+=(python3-pip); fi

# The readers of compiled kernels. Without them their test says that it is skipped.
get_cuda_readers() {
  local folder bin=/usr/local/bin
  [ "$cuda" = yes ] || return 0
  if command -v cuobjdump > /dev/null && command -v nvdisasm > /dev/null; then return 0; fi
  [ "$(id -u)" -eq 0 ] || bin=$HOME/.local/bin
  folder=$(mktemp -d)
  if python3 -m pip download -q --no-deps -d "$folder" nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm > "$folder/log" 2>&1; then
    for wheel in "$folder"/*.whl; do python3 -m zipfile -e "$wheel" "$folder/unpacked"; done
    mkdir -p "$bin"
    find "$folder/unpacked" -path '*/bin/*' \( -name cuobjdump -o -name nvdisasm \) -exec install -m 755 -t "$bin" {} +
    echo "setup: cuobjdump and nvdisasm are in $bin"
  else
    echo "setup: cuobjdump and nvdisasm are not to be had: $(tail -n 1 "$folder/log")" >&2
  fi
  rm -rf "$folder"
}

# get_headers NAME WHEEL FILE FOLDER: headers alone, FOLDER of a wheel, unless FILE of them is there.
get_headers() {
  local folder include=/usr/local/include
  [ "$cuda" = yes ] || return 0
  [ "$(id -u)" -eq 0 ] || include=$HOME/.local/include
  [ ! -e "$include/$3" ] || return 0
  folder=$(mktemp -d)
  if python3 -m pip download -q --no-deps -d "$folder" "$2" > "$folder/log" 2>&1; then
    python3 -m zipfile -e "$folder"/*.whl "$folder/unpacked"
    mkdir -p "$include"
    cp -r "$folder/unpacked/$4/." "$include"
    echo "setup: the headers of $1 are in $include"
  else
    echo "setup: the headers of $1 are not to be had: $(tail -n 1 "$folder/log")" >&2
  fi
  rm -rf "$folder"
}

# Without them the CUDA build has no attention by cuDNN (FORGE_CUDNN, docs/start.md).
get_cudnn_frontend() { get_headers "cuDNN's frontend" nvidia-cudnn-frontend==1.32.0 cudnn_frontend.h include; }

# 30 MB. Without them the CUDA build has no products of experts by CUTLASS (FORGE_CUTLASS, docs/start.md).
get_cutlass() { get_headers CUTLASS nvidia-cutlass==4.2.0.0 cutlass/cutlass.h cutlass_library/source/include; }

missing_of() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2> /dev/null | grep -q '^ii' || echo "$package"
  done
}

obtainable_of() {
  local package
  for package in "$@"; do
    ! apt-cache show "$package" > /dev/null 2>&1 || echo "$package"
  done
}

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "setup: this is neither Debian nor Ubuntu; docs/start.md says what to load or build here." >&2
  exit 0
fi
mapfile -t missing < <(missing_of "${packages[@]}" "${optional[@]}")
if [ "${#missing[@]}" -eq 0 ]; then
  get_cuda_readers
  get_cudnn_frontend
  get_cutlass
  echo "setup: everything is installed"
  exit 0
fi

mapfile -t required < <(missing_of "${packages[@]}")
if [ "${#required[@]}" -eq 0 ] && [ -z "$(obtainable_of "${missing[@]}")" ]; then
  get_cuda_readers
  get_cudnn_frontend
  get_cutlass
  echo "setup: everything is installed but ${missing[*]}, which this distribution doesn't have"
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "setup: not installed: ${missing[*]}" >&2
  get_cuda_readers
  get_cudnn_frontend
  get_cutlass
  [ "${#required[@]}" -eq 0 ] && exit 0
  echo "setup: root installs them with: apt-get install --no-install-recommends ${required[*]}" >&2
  echo "setup: without root, see docs/start.md (modules, Spack); the build will tell what it doesn't find." >&2
  exit 0
fi

export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -y -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
echo "setup: installing ${missing[*]}"
"${apt[@]}" update
available=()
for package in "${missing[@]}"; do
  if apt-cache show "$package" > /dev/null 2>&1; then
    available+=("$package")
  elif [[ " ${required[*]} " == *" $package "* ]]; then
    echo "setup: this distribution has no package $package; docs/start.md names the versions that are needed" >&2
    exit 1
  else
    echo "setup: this distribution has no package $package; going on without it"
  fi
done
[ "${#available[@]}" -eq 0 ] ||
  "${apt[@]}" install --no-install-recommends -o Dpkg::Options::=--force-confold "${available[@]}" > /dev/null
mapfile -t missing < <(missing_of "${packages[@]}")
if [ "${#missing[@]}" -gt 0 ]; then
  echo "setup: still not installed: ${missing[*]}" >&2
  exit 1
fi
get_cuda_readers
get_cudnn_frontend
get_cutlass
echo "setup: done"
