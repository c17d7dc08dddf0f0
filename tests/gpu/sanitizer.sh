#!/usr/bin/env bash
# sanitizer.sh TOOL FORGE ARGS…: forge under a tool of compute-sanitizer; any report fails. Where the tool refuses the GPU, as in some
# virtual machines, it is absent.
set -euo pipefail
tool=$1
shift
program=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2> /dev/null | head -n 1 || true)
if [ -z "$program" ]; then
  echo "no compute-sanitizer on this machine"
  exit 77
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
"$program" --tool "$tool" --error-exitcode 99 "$@" 2>&1 | tee "$log" || code=$?
if [ "$code" -ne 0 ] && grep -q "Device not supported" "$log"; then
  echo "compute-sanitizer refuses this machine's GPU: Device not supported"
  exit 77
fi
exit "$code"
