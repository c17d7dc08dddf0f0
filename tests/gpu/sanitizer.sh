#!/usr/bin/env bash
# sanitizer.sh TOOL FORGE ARGS…: forge under a tool of compute-sanitizer; any report fails.
set -euo pipefail
tool=$1
shift
program=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2> /dev/null | head -n 1 || true)
if [ -z "$program" ]; then
  echo "no compute-sanitizer on this machine"
  exit 77
fi
exec "$program" --tool "$tool" --error-exitcode 99 "$@"
