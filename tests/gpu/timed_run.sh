#!/usr/bin/env bash
# timed_run.sh DIRECTORY COMMAND…: a training with this run directory, and the median of its steps but the first three.
set -euo pipefail
directory=$1
shift
rm -rf "$directory"  # of a case that did not end
"$@"
"${PYTHON:-python3}" - "$directory/metrics.jsonl" << 'PY'
import json, statistics, sys
with open(sys.argv[1]) as file:
    steps = [line for line in map(json.loads, file) if "loss" in line]
def middle(key):
    return statistics.median(step[key] for step in steps[3:])
print(f"summary: {middle('step_seconds'):.4g} s a step, {middle('tokens_per_second'):.0f} tokens/s, {len(steps)} steps, loss {steps[-1]['loss']:.4f}")
PY
