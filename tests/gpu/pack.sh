#!/usr/bin/env bash
# pack.sh FILE BUILD REFERENCE WITH_NCCL: what `first_day.sh --pack FILE` does, on a Debian machine with both builds: FILE, a
# .tar.xz or else a new folder, has a folder forge_first_day like a checkout, with the programs (stripped), the list of tests, and in carried/ the
# libraries and Open MPI that a bare machine lacks. Left out: the C and C++ libraries and CUDA's large ones, which come with the
# toolkit or PyTorch; NCCL too, without --with-nccl.
set -euo pipefail
file=$1 build=$2 reference=$3 with_nccl=$4
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
to=$stage/forge_first_day

[ ! -d "$file" ] || { echo "pack: $file is there already" >&2; exit 2; }
[ -x "$build/forge" ] || { echo "pack: there is no $build/forge" >&2; exit 2; }
[ -x "$build/kernel_bench" ] || { echo "pack: there is no $build/kernel_bench: cmake --build $build --target kernel_bench" >&2; exit 2; }
mkdir -p "$to/build/cuda" "$to/build/cpu" "$to/carried/lib"
cp -r tests verify inputs docs jobscripts README.md "$to"
git rev-parse HEAD > "$to/carried/commit" 2> /dev/null || true

programs=("$build/forge" "$build/kernel_bench")
for program in "$build"/test_*; do [ ! -x "$program" ] || programs+=("$program"); done
for program in "${programs[@]}"; do strip -o "$to/build/cuda/$(basename "$program")" "$program"; done
(cd "$build" && find . -name 'lib*.so' -exec cp --parents {} "$to/build/cuda" \;)  # what tests preload
if [ -x "$reference/forge" ]; then
  strip -o "$to/build/cpu/forge" "$reference/forge"
  programs+=("$reference/forge")
else
  echo "pack: there is no $reference/forge; gradients will not be compared with the CPU's"
fi
python3 tests/gpu/list_tests.py "$build" gpu | sed "s#${build#"$root"/}/#build/cuda/#g" > "$to/build/cuda/gpu_tests"
sed -n 's/ absent / is left out: /p' "$to/build/cuda/gpu_tests" | sed 's/^/pack: test /'

# Open MPI's launcher, help texts and plugins, but for those of networks that one machine doesn't need, whose libraries are many;
# then all libraries that anything here needs.
system=/usr/lib/$(gcc -print-multiarch 2> /dev/null || echo x86_64-linux-gnu)
for path in /usr/bin/orterun /usr/bin/orted "$system/openmpi/lib" "$system/pmix2/lib" "$system/pmix2/share" /usr/share/openmpi /etc/openmpi; do
  [ ! -e "$path" ] || { mkdir -p "$to/carried$(dirname "$path")" && cp -a "$path" "$to/carried$path"; }
done
[ -x "$to/carried/usr/bin/orterun" ] || { echo "pack: Open MPI 4 is not installed as Debian 12's packages openmpi-bin and libopenmpi3 have it" >&2; exit 2; }
ln -s orterun "$to/carried/usr/bin/mpirun"
find "$to/carried" -name '*.a' -delete
find "$to/carried/usr/lib" \( -name '*ucx*' -o -name '*ofi*' -o -name '*openib*' -o -name '*verbs*' -o -name '*psm*' -o -name '*java*' \) -delete
mapfile -t plugins < <(find "$to/carried/usr/lib" -name '*.so*' -type f)
while read -r library; do
  case $(basename "$library") in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.* | ld-linux* | libstdc++.so.* | libgcc_s.so.*) ;;
    libcublas* | libcudnn* | libnvrtc* | libcuda.so.* | libnvidia*) ;;
    libnccl.so.*) [ "$with_nccl" = no ] || cp -L "$library" "$to/carried/lib" ;;
    *) cp -L "$library" "$to/carried/lib" ;;
  esac
done < <(ldd "${programs[@]}" "${plugins[@]}" /usr/bin/orterun | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u)

size=$(du -sm "$to" | cut -f 1)
if [[ $file = *.tar.xz ]]; then
  # The programs share most of their bytes, which a dictionary as large as several of them finds.
  tar -C "$stage" --sort=name -cf - forge_first_day | xz -T1 --lzma2=preset=3,dict=128MiB > "$file.new"
  mv "$file.new" "$file"
  size=$(($(stat -c %s "$file") / 1048576))
else
  mv "$stage" "$file"
fi
echo "pack: $file, $size MiB; there: forge_first_day/tests/gpu/first_day.sh"
[ "$size" -le 64 ] || echo "pack: more than 64 MiB"
