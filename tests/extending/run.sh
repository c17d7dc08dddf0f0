#!/usr/bin/env bash
# tests/extending/run.sh [--build BUILD] [NAME…]: applies each worked example of docs/developer.md (all, or the named ones) to a copy of the
# sources and of a build with its objects, compiles what it changes, and runs the tests that it names. Ends with 1 where an example no
# longer applies, doesn't compile, changes more sources than it says (their lines in CMakeLists.txt aside), or fails. --drawn: one, by the commit's hash, and all with
# FORGE_LONG=1; of tests/run.sh without --long one in each third commit.
#   BUILD  relative to the repository (default: build/cpu)
#   WORK   folder of the copy, kept (default: a temporary one)
#   JOBS   compilers at once (default: the cores)
#   LIMIT  seconds that a test may take (default: 600)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=build/cpu drawn=
while [[ "${1:-}" == --* ]]; do
  case $1 in
    --build) build=$2 && shift 2 ;;
    --drawn) drawn=1 && shift ;;
    *) echo "unknown: $1" >&2 && exit 2 ;;
  esac
done
if [ -n "${WORK:-}" ]; then
  work=$(mkdir -p "$WORK" && cd "$WORK" && pwd)
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
copy=$work/source log=$work/log.txt
export OMP_WAIT_POLICY=passive
mutate() { python3 "$here/../mutations/mutate.py" "$@"; }

examples=("$here"/*.patch)
[ $# -eq 0 ] || examples=("${@/#/$here/}") examples=("${examples[@]/%/.patch}")
# All must apply, whichever is built.
for example in "${examples[@]}"; do
  (cd "$root" && git apply --check "$example") || { echo "$(basename "$example") no longer applies" && exit 1; }
done
if [ -n "$drawn" ] && [ "${FORGE_LONG:-}" != 1 ]; then
  . "$root/tests/volume.sh"
  if is_third && [ "$(draw_below 3)" -ne 0 ]; then
    echo "this commit draws a planted mistake (tests/mutations/drawn.sh)"
    exit 0
  fi
  # Sources without a repository are drawn by what they are.
  key=$(git -C "$root" rev-parse HEAD 2> /dev/null || cat "$root"/src/*/*.cpp | sha256sum)
  mapfile -t examples < <(mutate draw "$key" 1 "${examples[@]}")
fi

# try_example PATCH: prints why it fails.
try_example() {
  local sources said program filter targets
  sources=$(grep -c '^+++ b/src/.*pp$' "$1") || true
  said=$(sed -n 's/^sources: //p' "$1")
  [ "$sources" -eq "$said" ] || { echo "changes $sources sources, and says $said"; return 1; }
  mapfile -t targets < <(mutate tests "$1" | cut -d ' ' -f 1 | sort -u)
  rm -rf "$copy"
  mutate copy "$root" "$build" "$work"
  (cd "$copy" && GIT_CEILING_DIRECTORIES=$work git apply -p1 "$1") > "$log" 2>&1 || { echo "no longer applies:"; cat "$log"; return 1; }
  cmake --build "$copy/$build" -j "${JOBS:-$(env -u OMP_NUM_THREADS nproc)}" --target "${targets[@]}" > "$log" 2>&1 ||
    { echo "does not compile:"; tail -40 "$log"; return 1; }
  while read -r program filter; do
    (cd "$root" && timeout "${LIMIT:-600}" "$copy/$build/$program" --gtest_filter="$filter") > "$log" 2>&1 || { echo "$program $filter:"; tail -40 "$log"; return 1; }
  done < <(mutate tests "$1")
  printf '%-20s %d sources, passed\n' "$(basename "$1" .patch)" "$sources"
}
bad=0
for example in "${examples[@]}"; do
  try_example "$example" || { echo "FAILED: $example" && bad=1; }
done
exit $bad
