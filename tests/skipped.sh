#!/usr/bin/env bash
# tests/skipped.sh BUILD…: what the last run of CTest in these builds left out, one line each, from what the tests said
# ("SKIPPED: what: why") and GoogleTest reports. With CI=true ends with 1 where anything is missing that a machine can
# install; what only another processor, a GPU, a package of PyPI or another release of the system could run ("LEFT OUT: what: why") is
# announced and no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

# said BUILD: "test: text" of every test that skipped itself, whole or in part.
said() {
  local log=$1/Testing/Temporary/LastTest.log
  [ -f "$log" ] || return 0
  sed 's/\x1b\[[0-9;]*m//g' "$log" | awk -v build="${1##*/}" '
    /^[0-9]+\/[0-9]+ Test: / { name = $3 }
    /^LEFT OUT: / { sub(/^LEFT OUT: /, ""); print "other " build ", " name ": " $0 }
    /^SKIPPED: / { sub(/^SKIPPED: /, ""); print build ", " name ": " $0 }
    /^\[  SKIPPED \] [^ ]+ \(/ { print "hardware " build ", " name ": " $4 }'
}

missing=0
report() {
  local line
  while read -r line; do
    case $line in
      "hardware "*) echo "== left out, not for this processor: ${line#hardware }" ;;
      "other "*) echo "== left out, no package of this system: ${line#other }" ;;
      *)
        echo "== SKIPPED: $line"
        missing=$((missing + 1))
        ;;
    esac
  done
}

report < <(
  for build in "$@"; do
    if [ "${build##*/}" = cuda ] && [ ! -d "$build" ]; then
      echo "cuda: no nvcc here, the preset is not built"
    else
      said "$build"
    fi
  done | sort -u
)
if ! command -v nvidia-smi > /dev/null || ! nvidia-smi -L > /dev/null 2>&1; then
  echo "== left out, no GPU here: the tests of the cuda preset are not built"
fi
[ "$missing" -gt 0 ] || echo "== nothing is skipped that this machine could run"
[ "$missing" -eq 0 ] || [ "${CI:-}" != true ]
