#!/usr/bin/env bash
# tests/equal_to_commit.sh COMMIT [LAYOUTS]: the program as it stands against that of another commit, bit for bit: for a
# change that must not change anything. Over all verification problems and LAYOUTS drawn layouts (default: 200; ranks as
# threads) it compares loss, norm and every gradient of a step, losses, norms and every tensor of the checkpoint of a
# short run with validation; and, with all decks of inputs/, what `forge show --json` says: planned memory, bytes sent,
# tasks, launches (`show --all`, as text, where the other commit has no --json). Of 48 of the layouts it compares the same
# on the emulated GPU, with the device's report: launches by kernel, copies, bytes in use.
#   BUILD  build of the working tree, with its tests (default: build/cpu)
#   VGPU   its build for the emulated GPU (default: build/vgpu); where there is none, that part is left out
#   WORK   folder for the other commit's builds and results, kept for the next run (default: a temporary one)
#   JOBS   compilers at once (default: the cores)
#   PARTS  of show verify layouts vgpu, which ones (default: all)
# Prints what differs, and ends with 1 where anything does. A key of the deck that one of the two commits lacks is no
# difference: where keys were removed or added, `forge show --deck` says something else, as it should. Decks of layouts
# are written by the working tree's build, and so name no key that it lacks.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
commit=$(git -C "$root" rev-parse --verify "${1:?usage: tests/equal_to_commit.sh COMMIT [LAYOUTS]}^{commit}")
layouts=${2:-200} build=${BUILD:-$root/build/cpu} vgpu=${VGPU:-$root/build/vgpu} parts=${PARTS:-show verify layouts vgpu}
vgpu_layouts=48
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

# build_other NAME OPTIONS…: the other commit's program, as $other/NAME.
build_other() {
  local name=$1 log=$other/$1.log
  shift
  [ ! -x "$other/$name" ] || return 0
  if [ ! -e "$other/source/CMakeLists.txt" ]; then
    mkdir -p "$other/source"
    git archive "$commit" | tar -x -C "$other/source"
  fi
  { cmake -S "$other/source" -B "$other/build_$name" -DCMAKE_BUILD_TYPE=Release -DFORGE_TESTS=OFF "$@" > "$log" 2>&1 &&
    cmake --build "$other/build_$name" -j "${JOBS:-$(nproc)}" --target forge >> "$log" 2>&1; } ||
    { tail -40 "$log"; exit 1; }
  cp "$other/build_$name/forge" "$other/$name"
}
build_other forge

# run FORGE FOLDER DECK RANKS: gradients, a run and its checkpoint; only what must not change stays in the folder.
run() {
  local forge=$1 to=$2 deck=$3 ranks=$4 code=0
  local -x FORGE_VGPU_REPORT=$to/report  # only the emulated GPU writes one
  rm -rf "$to"
  mkdir -p "$to"
  "$forge" gradients "$deck" --ranks "$ranks" --output "$to/gradients.safetensors" > "$to/gradients" 2>&1 || code=$?
  "$forge" "$deck" --ranks "$ranks" --set "output.directory=$to/run" --set "checkpoint.directory=$to/saved" \
    --set machine.peak_tflops=1 > "$to/log" 2>&1 || code=$?
  if [ $code -ne 0 ]; then
    echo "$deck: $forge ends with $code"
    cat "$to/gradients" "$to/log" | tail -3
    return 0
  fi
  grep '^loss' "$to/gradients" > "$to/loss"
  sed -E 's/"(time|elapsed_seconds|step_seconds|tokens_per_second|mfu)": [^,]*, //g; s/, "start_seconds": \{[^}]*\}//; s/, "computation": \{[^]]*\]\}//' "$to/run/metrics.jsonl" > "$to/metrics"
  grep -oE 'planned [0-9.]+ ([KMG]i)?B, high-water mark [0-9.]+ ([KMG]i)?B' "$to/log" > "$to/memory" || echo "$deck: no memory in the log"
  find "$to/saved" -name 'shard_*.h5' -exec mv -t "$to" {} +
  rm -rf "$to/run" "$to/saved" "$to/log" "$to/gradients"
}

# Whether both programs have show --json.
both_have_json=true
for forge in "$other/forge" "$build/forge"; do
  [[ $("$forge" show --help) == *--json* ]] || both_have_json=false
done

failures=0
# equal_show DECK OPTIONS…: whether both say the same of a deck, each with the decks and machine files of its own commit.
equal_show() {
  local theirs=$work/theirs.txt ours=$work/ours.txt same
  if $both_have_json; then
    (cd "$other/source" && "$other/forge" show --json "$@") > "$theirs" 2>&1 || true
    "$build/forge" show --json "$@" > "$ours" 2>&1 || true
    same=(tests/show_differences.py "$theirs" "$ours")
  else
    (cd "$other/source" && "$other/forge" show --all "$@") > "$theirs" 2>&1 || true
    "$build/forge" show --all "$@" > "$ours" 2>&1 || true
    same=(diff "$theirs" "$ours")
  fi
  "${same[@]}" > "$work/difference" && return
  echo "show $*:" && head -20 "$work/difference"
  failures=$((failures + 1))
}

# equal NAME DECK RANKS [THEIRS OURS]: compares the folders of both programs; the other commit's is kept.
equal() {
  local name=$1 deck=$2 ranks=$3 theirs=$other/$1 ours=$work/ours/$1
  [ -e "$theirs/memory" ] || run "${4:-$other/forge}" "$theirs" "$deck" "$ranks"
  run "${5:-$build/forge}" "$ours" "$deck" "$ranks"
  if [ ! -s "$theirs/memory" ] || ! diff -rq "$theirs" "$ours"; then
    echo "$name: differs ($deck)"
    failures=$((failures + 1))
  else
    rm -rf "$ours"
  fi
}

# draw COUNT: that many decks in $work/decks, the first ones whatever their number.
draw() {
  [ "$(find "$work/decks" -name '*.yaml' 2> /dev/null | wc -l)" -lt "$1" ] || return 0
  rm -rf "$work/decks" "$other"/layout_* "$other"/vgpu_*
  mkdir -p "$work/decks"
  "$build/draw_decks" "$work/decks" "$1"
}

# drawn COUNT: their paths.
drawn() {
  find "$work/decks" -name '*.yaml' | sort | head -n "$1"
}

count=0
for part in $parts; do
  case $part in
    show)
      for deck in inputs/*.yaml; do
        equal_show "$deck" --tasks 0 --rates
        equal_show "$deck" --cost h100_8
      done
      for deck in verify/*/input.yaml; do equal_show "$deck" --tasks 0 --rates; done ;;
    verify)
      for deck in verify/*/input.yaml; do
        name=$(basename "$(dirname "$deck")")
        equal "verify_$name" "$deck" 1
        count=$((count + 1))
      done ;;
    layouts)
      draw "$layouts"
      for deck in $(drawn "$layouts"); do
        name=$(basename "$deck" .yaml)
        equal_show "$deck"
        equal "layout_$name" "$deck" "${name#*_}"
        count=$((count + 1))
      done ;;
    vgpu)
      [ -x "$vgpu/forge" ] || { echo "vgpu: left out, there is no $vgpu/forge"; continue; }
      build_other forge_vgpu -DFORGE_VGPU=ON
      draw "$vgpu_layouts"
      for deck in $(drawn "$vgpu_layouts"); do
        name=$(basename "$deck" .yaml)
        equal "vgpu_$name" "$deck" "${name#*_}" "$other/forge_vgpu" "$vgpu/forge"
        count=$((count + 1))
      done ;;
  esac
done
echo "$count runs, $failures differences against $commit"
[ "$failures" -eq 0 ]
