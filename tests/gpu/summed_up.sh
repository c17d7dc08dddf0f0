#!/usr/bin/env bash
# summed_up.sh PATTERN COMMAND…: runs it, and says the last of its lines that match as what it came to.
set -euo pipefail
pattern=$1
shift
printed=$(mktemp)
trap 'rm -f "$printed"' EXIT
"$@" 2>&1 | tee "$printed"
grep -E -- "$pattern" "$printed" | tail -n 1 | sed 's/^ */summary: /'
