#!/usr/bin/env bash
# verify.sh FORGE: every problem of verify/ agrees with its reference, in fp64 and fp32; and the bounds are what docs say: a
# loss that is off by 2e-12 or a gradient by 2e-11 is a failure in fp64, by a tenth of that it is not.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"
problems=52
fp8=7  # once each, with all else in fp64
all=$((2 * problems + fp8))

# Emulated GPUs are slow: each sixth problem, drawn by the commit's hash, where tests/run.sh wants a third of the volume; and what
# `forge verify` compares is the same code in every build.
if "$forge" version | grep -q "vgpu" && is_third; then
  draw=$(draw_below 6)
  mapfile -t drawn < <(ls -d verify/*/ | awk -v draw="$draw" 'NR % 6 == draw')
  [ $((6 * ${#drawn[@]} + 6)) -ge $((problems + fp8)) ] || fail "only ${#drawn[@]} problems"
  expect 0 "agree with their references" "$forge" verify "${drawn[@]}"
  cat "$work/output"
  [ "$(grep -c " ok$" "$work/output")" -ge "${#drawn[@]}" ] || fail "not every problem of ${drawn[*]} agrees"
  finish
  exit 0
fi

expect 0 "$all of $all agree with their references" "$forge" verify
cat "$work/output"
[ "$(grep -c " ok$" "$work/output")" -eq $all ] || fail "not $problems problems twice and $fp8 in fp8"

if "$forge" version | grep -q "vgpu"; then
  echo "left out on an emulated GPU: results that are off"
  finish
  exit 0
fi

# changed KIND FACTOR: a copy of a problem whose first loss or largest gradient is off by that factor.
changed() {
  rm -rf "$work/problem"
  cp -r verify/llama "$work/problem"
  python3 - "$work/problem" "$1" "$2" << 'PY'
import json, struct, sys
folder, kind, off = sys.argv[1], sys.argv[2], float(sys.argv[3])
if kind == "loss":
    path = folder + "/reference.yaml"
    text = open(path).read()
    first = text.split("loss: [", 1)[1].split(",", 1)[0]
    open(path, "w").write(text.replace(first, repr(float(first) * (1 + off)), 2))
else:
    path = folder + "/gradients.safetensors"
    data = bytearray(open(path, "rb").read())
    (length,) = struct.unpack("<Q", data[:8])
    tensor = json.loads(data[8 : 8 + length])["model.norm.weight"]
    begin, end = (8 + length + at for at in tensor["data_offsets"])
    values = list(struct.unpack(f"<{(end - begin) // 8}d", data[begin:end]))
    values[0] += off * max(map(abs, values))
    data[begin:end] = struct.pack(f"<{len(values)}d", *values)
    open(path, "wb").write(data)
PY
}
while read -r kind beyond within; do
  changed "$kind" "$beyond"
  expect 1 "1 verification problems disagree" "$forge" verify "$work/problem"
  grep -q "fp64 .*FAILED" "$work/output" || fail "the $kind is off by $beyond, and fp64 agrees"
  changed "$kind" "$within"
  expect 0 "2 of 2 agree" "$forge" verify "$work/problem"
done << 'CASES'
loss 2e-12 2e-13
gradient 2e-11 2e-12
CASES
finish
