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
echo "the MPI that is named is taken"
