# Helpers of the scripts beside this one: source it after setting `forge`.
. "$(dirname "${BASH_SOURCE[0]}")/../../jobscripts/launcher.sh"
ranks_share_cores
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

# expect CODE TEXT COMMAND…: the exit code, and a text that standard output or error contains ("": any).
expect() {
  local code=$1 text=$2 got=0
  shift 2
  "$@" > "$work/output" 2>&1 || got=$?
  [ "$got" -eq "$code" ] || { fail "exit code $got, not $code: $*"; cat "$work/output" >&2; }
  [ -z "$text" ] || grep -qF -- "$text" "$work/output" || { fail "no '$text' from: $*"; cat "$work/output" >&2; }
}

. "$(dirname "${BASH_SOURCE[0]}")/../volume.sh"

# Whether this build runs ranks as threads (--ranks): the CUDA build doesn't, and what needs them is left out, which
# tests/skipped.sh announces.
has_thread_ranks() {
  "$forge" version | grep -q "^forge [^,]*, cuda" || return 0
  echo "SKIPPED: what needs ranks as threads: this build has none"
  return 1
}

finish() {
  [ "$failures" -eq 0 ] || exit 1
  echo "all as expected"
}
