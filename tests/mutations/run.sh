#!/usr/bin/env bash
# tests/mutations/run.sh [--build BUILD] [--made] [NAME…]: plants each known mistake of trainers (all, or the named ones), one at a time,
# in a copy of the sources and of a build with its objects, so that only what the mistake changes is compiled, and runs the
# tests that must notice it. Prints a table; ends with 1 where a mistake was missed, doesn't compile or no longer applies.
#   BUILD  relative to the repository (default: build/cpu); the tests that are needed are made there first, and must pass
#   --made they are there, and somebody else sees that they pass
#   WORK   folder of the copy, kept (default: a temporary one)
#   JOBS   compilers at once (default: the cores)
#   LIMIT  seconds after which the tests count as hanging, which catches a mistake too (default: 600)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
jobs=${JOBS:-$(env -u OMP_NUM_THREADS nproc)}
limit=${LIMIT:-600}
build=build/cpu
if [ "${1:-}" = --build ]; then
  build=$2
  shift 2
fi
made=
if [ "${1:-}" = --made ]; then
  made=1
  shift
fi
if [ -n "${WORK:-}" ]; then
  work=$(mkdir -p "$WORK" && cd "$WORK" && pwd)
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
copy=$work/source log=$work/log.txt
export OMP_WAIT_POLICY=passive
unset FORGE_VOLUME GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX  # one test may be all that sees a mistake

mutate() { python3 "$here/mutate.py" "$@"; }
# targets MUTATION…: the executables that their tests need.
targets() { for m in "$@"; do mutate tests "$m"; done | cut -d ' ' -f 1 | sort -u; }
# compile FOLDER TARGET…
compile() {
  local folder=$1
  shift
  cmake --build "$folder" -j "$jobs" --target "$@" > "$log" 2>&1
}
# run_test PROGRAM FILTER [OPTIONS]: of GoogleTest; or a script of the shell or of Python that gets the program.
run_test() {
  local program=$1 filter=$2
  shift 2
  case $filter in
    *.sh) timeout "$limit" "$filter" "$program" ;;
    *.py) timeout "$limit" python3 "$filter" "$program" ;;
    *) timeout "$limit" "$program" "$@" --gtest_filter="$filter" ;;
  esac
}
# with SETTING… -- COMMAND…: in that environment.
with() (
  while [ "$1" != -- ]; do
    export "${1?}"
    shift
  done
  shift
  "$@"
)
# seeds MUTATION: of the emulated device, in turn until one shows the mistake. What comes too early on a device shows in some
# orders of its work only, and time has its part in them: one seed has missed event_before_clearing 36 times in 150.
seeds() {
  case $1 in
    */device/*) echo 1 2 3 4 5 6 7 8 ;;
    *) echo 1 ;;
  esac
}
# notice FOLDER MUTATION: runs its tests; ends with the exit code of the first that fails. Scripts are the copy's, which may call
# others with the mistake.
notice() {
  local program filter code settings seed
  mapfile -t settings < <(mutate environment "$2")
  for seed in $(seeds "$2"); do
    while read -r program filter; do
      code=0
      case $filter in *.sh | *.py) filter=$copy/$filter ;; esac
      with FORGE_VGPU_SEED="$seed" "${settings[@]}" -- run_test "$1/$program" "$filter" --gtest_fail_fast > "$log" 2>&1 || code=$?
      [ $code -eq 0 ] || return $code
    done < <(mutate tests "$2")
  done
}
# What the tests said first: the part of a failure that names a tensor or number.
# Or what the emulated device said, behind the kernel's name and its place.
reason() {
  if grep -q '^vgpu: error: ' "$log"; then
    grep -m1 '^vgpu: error: ' "$log" | sed -E 's/^vgpu: error: //; s/^kernel .*, block \([0-9,]+\)(, thread \([0-9,]+\))?:? //' | cut -c1-160
  else
    grep -m1 -oE 'Which is: .*|terminate called.*|Segmentation fault.*|The difference between .*|FAILED: .*' "$log" | sed -E 's/\\n.*//; s/.*: ([^:]+)"?$/\1/' | cut -c1-90
  fi
}
# said MUTATION: whether the tests said what it names, if it does.
said() {
  local words
  while read -r words; do grep -qF -- "$words" "$log" || return 1; done < <(mutate says "$1")
}

mutations=()
if [ $# -gt 0 ]; then
  for name in "$@"; do mutations+=("$here/$name.mutation"); done
else
  mutations=("$here"/*.mutation)
fi
mutate check "$root" "${mutations[@]}"
# The tests are made, and pass as they are; that they run at all is theirs to say (run_tests.cpp).
check_tests() {
  local all program filter
  [ -f "$root/$build/CMakeCache.txt" ] ||
    cmake -S "$root" -B "$root/$build" -DCMAKE_BUILD_TYPE=Release > "$log" 2>&1 || { cat "$log"; return 1; }
  mapfile -t all < <(targets "${mutations[@]}")
  compile "$root/$build" "${all[@]}" || { tail -40 "$log"; return 1; }
  for mutation in "${mutations[@]}"; do mutate tests "$mutation"; done | sort -u > "$work/tests"
  while read -r program filter; do
    (cd "$root" && run_test "$root/$build/$program" "$filter") > "$log" 2>&1 || {
      tail -40 "$log"
      echo "$program $filter: fails without any mistake"
      return 1
    }
  done < "$work/tests"
}
[ -n "$made" ] || check_tests

bad=0 count=0
for mutation in "${mutations[@]}"; do
  name=$(basename "$mutation" .mutation)
  rm -rf "$copy"
  mutate copy "$root" "$build" "$work"
  mutate apply "$copy" "$mutation"
  mapfile -t needed < <(targets "$mutation")
  if ! compile "$copy/$build" "${needed[@]}"; then
    result="DOES NOT COMPILE"
    bad=1
    cp "$log" "$work/$name.log"
  else
    code=0
    (cd "$root" && notice "$copy/$build" "$mutation") || code=$?
    case $code in
      0)
        result="MISSED"
        bad=1
        ;;
      124) result="caught: hangs" ;;
      *) result="caught: $(reason || echo "exit code $code")" ;;
    esac
    if [ $code -ne 0 ] && ! said "$mutation"; then
      result="MISSED, but $result"
      bad=1
    fi
  fi
  count=$((count + 1))
  printf '%-36s %s\n' "$name" "$result"
done
[ "$count" -eq "${#mutations[@]}" ] || bad=1
printf '%d of %d mistakes planted\n' "$count" "${#mutations[@]}"
exit $bad
