#!/usr/bin/env bash
# tests/equal_to_commit.sh COMMIT [LAYOUTS]: the program as it stands against that of another commit, bit for bit: for a
# change that must not change anything. Over all verification problems and LAYOUTS drawn layouts (default: 200; ranks as
# threads) it compares loss, norm and every gradient of a step, losses, norms and every tensor of the checkpoint of a
# short run with validation; and, with all decks of inputs/, what `forge show` says: planned memory, bytes sent.
#   BUILD  build of the working tree, with its tests (default: build/cpu)
#   WORK   folder for the other commit's build and results, kept for the next run (default: a temporary one)
#   JOBS   compilers at once (default: the cores)
#   PARTS  of show verify layouts, which ones (default: all)
# Prints what differs, and ends with 1 where anything does.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
commit=$(git -C "$root" rev-parse --verify "${1:?usage: tests/equal_to_commit.sh COMMIT [LAYOUTS]}^{commit}")
layouts=${2:-200} build=${BUILD:-$root/build/cpu} parts=${PARTS:-show verify layouts}
if [ -n "${WORK:-}" ]; then
  mkdir -p "$WORK"
  work=$(cd "$WORK" && pwd)
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
other=$work/$commit
cd "$root"

if [ ! -x "$other/forge" ]; then
  mkdir -p "$other/source"
  git archive "$commit" | tar -x -C "$other/source"
  cmake -S "$other/source" -B "$other/build" -DCMAKE_BUILD_TYPE=Release -DFORGE_TESTS=OFF > "$other/log" 2>&1 &&
    cmake --build "$other/build" -j "${JOBS:-$(nproc)}" --target forge >> "$other/log" 2>&1 ||
    { tail -40 "$other/log"; exit 1; }
  cp "$other/build/forge" "$other/forge"
fi

# run FORGE FOLDER DECK RANKS: gradients, a run and its checkpoint; only what must not change stays in the folder.
run() {
  local forge=$1 to=$2 deck=$3 ranks=$4 code=0
  rm -rf "$to"
  mkdir -p "$to"
  "$forge" gradients "$deck" --ranks "$ranks" --output "$to/gradients.safetensors" > "$to/gradients" 2>&1 || code=$?
  "$forge" "$deck" --ranks "$ranks" --set "output.directory=$to/run" --set "checkpoint.directory=$to/saved" \
    > "$to/log" 2>&1 || code=$?
  if [ $code -ne 0 ]; then
    echo "$deck: $forge ends with $code"
    cat "$to/gradients" "$to/log" | tail -3
    return 0
  fi
  grep '^loss' "$to/gradients" > "$to/loss"
  sed -E 's/"(time|elapsed_seconds|step_seconds|tokens_per_second|mfu)": [^,]*, //g' "$to/run/metrics.jsonl" > "$to/metrics"
  grep -o 'planned [0-9]* B, high-water mark [0-9]* B' "$to/log" > "$to/memory"
  find "$to/saved" -name 'shard_*.h5' -exec mv -t "$to" {} +
  rm -rf "$to/run" "$to/saved" "$to/log" "$to/gradients"
}

failures=0
# equal NAME DECK RANKS: compares the folders of both; the other commit's is kept.
equal() {
  local name=$1 deck=$2 ranks=$3 theirs=$other/$1 ours=$work/ours/$1
  [ -e "$theirs/memory" ] || run "$other/forge" "$theirs" "$deck" "$ranks"
  run "$build/forge" "$ours" "$deck" "$ranks"
  if [ ! -s "$theirs/memory" ] || ! diff -rq "$theirs" "$ours"; then
    echo "$name: differs ($deck)"
    failures=$((failures + 1))
  else
    rm -rf "$ours"
  fi
}

count=0
for part in $parts; do
  case $part in
    show)
      for deck in inputs/*.yaml verify/*/input.yaml; do
        "$other/forge" show "$deck" > "$work/theirs.txt" 2>&1 || true
        "$build/forge" show "$deck" > "$work/ours.txt" 2>&1 || true
        diff "$work/theirs.txt" "$work/ours.txt" > "$work/difference" && continue
        echo "show $deck:" && head -20 "$work/difference"
        failures=$((failures + 1))
      done ;;
    verify)
      for deck in verify/*/input.yaml; do
        name=$(basename "$(dirname "$deck")")
        equal "verify_$name" "$deck" 1
        count=$((count + 1))
      done ;;
    layouts)
      if [ "$(find "$work/decks" -name '*.yaml' 2> /dev/null | wc -l)" -lt "$layouts" ]; then
        rm -rf "$work/decks" && mkdir -p "$work/decks"
        "$build/draw_decks" "$work/decks" "$layouts"
        rm -rf "$other"/layout_*
      fi
      for deck in $(find "$work/decks" -name '*.yaml' | sort | head -n "$layouts"); do
        name=$(basename "$deck" .yaml)
        equal "layout_$name" "$deck" "${name#*_}"
        count=$((count + 1))
      done ;;
  esac
done
echo "$count runs, $failures differences against $commit"
[ "$failures" -eq 0 ]
