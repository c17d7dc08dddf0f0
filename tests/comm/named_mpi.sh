#!/usr/bin/env bash
# named_mpi.sh: CMake takes the MPI whose C++ or C wrapper is named, says which, and another one where the name changes.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'cmake_minimum_required(VERSION 3.25)\nproject(named C)\ninclude(%s/src/comm/find_mpi.cmake)\n' "$root" > "$work/CMakeLists.txt"
for mpi in one two; do
  mkdir "$work/$mpi"
  for wrapper in mpicc mpicxx; do
    printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v $wrapper)" > "$work/$mpi/$wrapper"
    chmod +x "$work/$mpi/$wrapper"
  done
done
rm "$work/two/mpicc"
# Another MPI, with a library of its own.
mkdir "$work/other"
echo 'int MPI_Init(int* c, char*** v) { return !c || !v; } int MPI_Finalize(void) { return 0; } int MPI_Get_version(int* v, int* s) { return !v || !s; } int MPI_Get_library_version(char* n, int* l) { return !n || !l; }' > "$work/other/mpi.c"
echo 'int MPI_Init(int*, char***); int MPI_Finalize(void); int MPI_Get_version(int*, int*); int MPI_Get_library_version(char*, int*);
#define MPI_MAX_LIBRARY_VERSION_STRING 256
#define MPI_VERSION 3
#define MPI_SUBVERSION 1' > "$work/other/mpi.h"
cc -shared -fPIC -o "$work/other/libmpi.so" "$work/other/mpi.c"
cat > "$work/other/mpicc" << WRAPPER
#!/bin/sh
for word in "\$@"; do
  case \$word in
    -showme:compile | -showme:incdirs) echo "-I$work/other"; exit ;;
    -showme:link) echo "-L$work/other -lmpi"; exit ;;
    -showme:libdirs) echo "$work/other"; exit ;;
    -show*) exit 1 ;;
  esac
done
exec cc "-I$work/other" "\$@" "-L$work/other" -lmpi
WRAPPER
chmod +x "$work/other/mpicc"

expect() { # TEXT OPTIONS…: what CMake says
  local text=$1
  shift
  cmake -S "$work" -B "$work/build" "$@" > "$work/output" 2>&1 || { cat "$work/output"; exit 1; }
  grep -qE "MPI: /.*libmpi.*, by $text\$" "$work/output" || { echo "FAILED: not by $text: $*"; cat "$work/output"; exit 1; }
}
expect "$(command -v mpicc)"
expect "$work/one/mpicc" -DMPI_CXX_COMPILER="$work/one/mpicxx"
expect "$work/two/mpicxx" -DMPI_CXX_COMPILER="$work/two/mpicxx"
expect "$work/two/mpicxx"
expect "$work/one/mpicc" -DMPI_C_COMPILER="$work/one/mpicc"
links() { grep -q "MPI: $1/[^ ]*libmpi[^ ]*, by" "$work/output" || { echo "FAILED: another library than of $1"; cat "$work/output"; exit 1; }; }
expect "$work/other/mpicc" -DMPI_C_COMPILER="$work/other/mpicc"
links "$work/other"
expect "$work/one/mpicc" -DMPI_C_COMPILER="$work/one/mpicc"
links /usr
expect "$work/other/mpicc" -DMPI_C_COMPILER="$work/other/mpicc" -DMPI_CXX_COMPILER="$work/one/mpicxx" # both: the C one
links "$work/other"
PATH=$work/one:$PATH expect "$work/one/mpicc" -DMPI_CXX_COMPILER=mpicxx
links /usr
echo "the MPI that is named is taken"
