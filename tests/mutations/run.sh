#!/usr/bin/env bash
# tests/mutations/run.sh [NAME…]: plants each known mistake of trainers (all, or the named ones) in a copy of the sources
# and runs a quick choice of the layout tests, which must fail. Prints a table; ends with 1 where a mistake was missed,
# doesn't compile or no longer applies. See README.md.
#   WORK   folder of the copy and its build, kept for the next run (default: a temporary one)
#   JOBS   compilers at once (default: the cores)
#   LIMIT  seconds after which the tests count as hanging, which catches a mistake too (default: 600)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
jobs=${JOBS:-$(nproc)}
limit=${LIMIT:-600}
if [ -n "${WORK:-}" ]; then
  work=$WORK
  mkdir -p "$work"
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
source=$work/source build=$work/build log=$work/log.txt
export OMP_WAIT_POLICY=passive

# Copies what differs: whatever stays as it is keeps its time, and is not compiled again.
copy() {
  mkdir -p "$source"
  (cd "$root" && find src tests CMakeLists.txt -type f) > "$work/files"
  while read -r file; do
    cmp -s "$root/$file" "$source/$file" && continue
    mkdir -p "$source/$(dirname "$file")"
    cp "$root/$file" "$source/$file"
  done < "$work/files"
}
compile() { cmake --build "$build" -j "$jobs" --target test_layouts > "$log" 2>&1; }
# Ends with the tests' exit code at the first failure.
quick() {
  local tests code
  for tests in 'Quick.*' 'NotFinite.*'; do
    code=0
    timeout "$limit" "$build/test_layouts" --gtest_fail_fast --gtest_filter="$tests" > "$log" 2>&1 || code=$?
    [ $code -eq 0 ] || return $code
  done
}
# What the tests said first: the part of a failure that names a tensor or number.
reason() { grep -m1 -oE 'Which is: .*|terminate called.*|Segmentation fault.*' "$log" | sed -E 's/\\n.*//; s/.*: ([^:]+)"?$/\1/' | cut -c1-90; }

mutations=()
if [ $# -gt 0 ]; then
  for name in "$@"; do mutations+=("$here/$name.mutation"); done
else
  mutations=("$here"/*.mutation)
fi
python3 "$here/mutate.py" check "$root" "${mutations[@]}"
copy
cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DFORGE_TESTS=ON > "$log" 2>&1 || { cat "$log"; exit 1; }
compile || { tail -40 "$log"; exit 1; }
if ! quick; then
  tail -40 "$log"
  echo "the tests fail without any mistake"
  exit 1
fi

bad=0
for mutation in "${mutations[@]}"; do
  name=$(basename "$mutation" .mutation)
  python3 "$here/mutate.py" apply "$source" "$mutation"
  if ! compile; then
    result="DOES NOT COMPILE"
    bad=1
    cp "$log" "$work/$name.log"
  else
    code=0
    quick || code=$?
    case $code in
      0)
        result="MISSED"
        bad=1
        ;;
      124) result="caught: hangs" ;;
      *) result="caught: $(reason || echo "exit code $code")" ;;
    esac
  fi
  printf '%-36s %s\n' "$name" "$result"
  copy
done
exit $bad
