#!/usr/bin/env bash
# decks.sh FORGE: `forge show` accepts every deck of inputs/ without a launcher, and what each says of its layout and its
# batch is what comes out; each fits the GPUs that it is for.
set -euo pipefail
forge=$1
. "$(dirname "$0")/expect.sh"
. "$(dirname "$0")/deck_values.sh"

count=0
for deck in inputs/*.yaml; do
  count=$((count + 1))
  "$forge" show "$deck" > "$work/shown" 2>&1 || { fail "forge show $deck: $(tail -n 5 "$work/shown")"; continue; }
  [ "$deck" != inputs/quickstart.yaml ] || continue
  read -r pp replicate shard cp tp <<< "$(mesh_column "$work/shown" 2)"
  ranks=$((pp * replicate * shard * cp * tp))
  layout="# layout: $ranks rank$([ "$ranks" -eq 1 ] || echo s) = pp $pp x dp_replicate $replicate x dp_shard $shard x cp $cp x tp $tp, strides $(mesh_column "$work/shown" 3)"
  grep -qxF "$layout" "$deck" || fail "$deck doesn't say: $layout"
  grep -q "^mesh of $ranks ranks" "$work/shown" || fail "$deck: the mesh is not of $ranks ranks"
  global=$(value "$work/shown" train global_batch_sequences)
  b=$(value "$work/shown" train microbatch_sequences)
  data=$((replicate * shard))
  m=$((global / (b * data)))
  batch="# batch: $global sequences of $(value "$work/shown" train sequence_tokens) tokens = $data data-parallel x $m microbatch$([ "$m" -eq 1 ] || echo es) x $b"
  grep -qxF "$batch" "$deck" || fail "$deck doesn't say: $batch"
  # GPUs of 80 GB, or of 141 GB where the deck says so, less what drivers and libraries take; decks for any number of
  # ranks are shown for one, which need not be enough.
  limit=$((76 << 30))
  grep -q "141 GB" "$deck" && limit=$((134 << 30))
  peak=$(awk '$1 == "peak" && $3 == "B" { print $2; exit }' "$work/shown")
  grep -q "dp_shard: -1" "$deck" || { [ -n "$peak" ] && [ "$peak" -le "$limit" ]; } ||
    fail "$deck: the largest rank takes $peak B, more than $limit"
  [ "$(awk '/^stages/ { inside = 1; next } inside && /^ +[0-9]/ { layers += $4 } inside && /^$/ { exit } END { print layers }' "$work/shown")" \
    -eq "$(value "$work/shown" model layers)" ] || fail "$deck: the stages don't hold every layer"
done
[ "$count" -ge 30 ] || fail "only $count decks under inputs/"
finish
