#!/usr/bin/env bash
# first_cluster_test.sh BUILD: first_cluster.sh, rehearsed with four ranks of this machine; its codes; and its decks for jobs of 8 to 64 ranks.
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
forge=$build/forge
. "$here/../app/expect.sh"
cluster=$here/first_cluster.sh
out=$work/out

expect 2 "legal is the number of ranks" env -u SLURM_NTASKS "$cluster" --rehearse --build "$build" --output "$out"
expect 2 "--ranks 12: legal are multiples of 8" "$cluster" --ranks 12 --build "$build" --output "$out"
expect 2 "--ranks needs a value" "$cluster" --ranks
expect 2 "first_cluster: --fast: no such option" "$cluster" --ranks 8 --fast
expect 1 "folder                                       failed" "$cluster" --ranks 8 --launch false --part start --build "$build" --output "$work/none"

expect 0 "code 0" "$cluster" --rehearse --ranks 4 --machine h100_8 --build "$build" --output "$out"
grep '^== ' "$work/output"
for said in "collectives  *passed .*median error of" "13b_32gpu_tp4_pp2  *passed .* s a step" "fit  *passed .*compute_speed"; do
  grep -q "$said" "$out/summary.txt" || fail "the summary has no $said: $(cat "$out/summary.txt")"
done
for file in calibrate/measured.yaml fit/fitted.yaml; do
  expect 0 "a second and GPU" "$forge" plan "$out/decks/qwen3_30b_16gpu.yaml" --ranks 4 --machine "$out/$file"
done
[ -n "$(ls "$out/runs/qwen3_30b_16gpu/profile")" ] || fail "no profile"
expect 0 "calibrate: passed, not run again" "$cluster" --rehearse --ranks 4 --machine h100_8 --build "$build" --output "$out"

# the decks that GPUs run
for ranks in 8 16 32 64; do
  export CLUSTER_RANKS=$ranks CLUSTER_LAUNCH=true CLUSTER_MACHINE=h100_8
  (
    rehearse=no out=$work/$ranks python=python3
    cd "$root"
    . "$here/first_cluster_parts.sh"
    make_decks
  ) || fail "no decks for $ranks ranks"
  for deck in "$work/$ranks"/decks/*.yaml; do
    expect 0 "memory    fits: " "$forge" plan "$deck" --ranks "$ranks" --machine h100_8
  done
done
finish
