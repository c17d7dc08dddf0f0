#!/usr/bin/env bash
# run.sh PROGRAM: fuzzes for FORGE_FUZZ_SECONDS (10; 60 with FORGE_LONG=1), from seeds that the program writes itself. What fails is kept, and named.
set -euo pipefail
program=$1
seconds=${FORGE_FUZZ_SECONDS:-$([ "${FORGE_LONG:-0}" = 1 ] && echo 60 || echo 10)}
seed=${FORGE_FUZZ_SEED:-1}
work=$(mktemp -d)
pid=0 # of the program, which leaves its files behind when it crashes
trap 'rm -rf "$work" {/dev/shm,/tmp}/forge_{checkpoint,token_fuzz,user_fuzz}_${pid}_*' EXIT
mkdir "$work/corpus" "$work/found"
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=0
"$program" --seeds "$work/corpus"
# Single allocations stay below 64 MiB: the inputs are far smaller than that.
code=0
"$program" -seed="$seed" -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=64 -rss_limit_mb=2048 -max_len=262144 \
  -print_final_stats=1 -artifact_prefix="$work/found/" "$work/corpus" > "$work/log" 2>&1 &
pid=$!
wait $pid || code=$?
grep -E "^(stat::number_of_executed_units|stat::peak_rss_mb|accepted)" "$work/log" || true
grep "cov: " "$work/log" | tail -1 || true
if [ $code -ne 0 ]; then
  tail -60 "$work/log"
  for file in "$work"/found/*; do
    [ -e "$file" ] || continue
    echo "FAILED: $(basename "$file"), base64 of its gzip:"
    gzip -9 < "$file" | base64
  done
  exit 1
fi
