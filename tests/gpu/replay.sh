#!/usr/bin/env bash
# replay.sh FORGE whole|small FILE DECK OPTIONS…: `forge replay` of a rank of a deck, whose times go to FILE, and a line of what they
# come to. small: a twin of the deck with the same mesh. Ends with 77 where the GPU hasn't the rank's memory.
# replay.sh FORGE plan FOLDER DECK MACHINE NAMES…: a step of all ranks from FOLDER/NAME_none.json of such runs. Ends with 77 where one
# of them is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
forge=$1 what=$2 file=$3 deck=$4
shift 4
settings=()
if [ "$what" = plan ]; then
  folder=$file machine=$1 files=("${@:2}")
  files=("${files[@]/#/$folder/}")
  files=("${files[@]/%/_none.json}")
  for file in "${files[@]}"; do [ -s "$file" ] || { echo "there is no $file" && exit 77; }; done
  mapfile -t settings < "${files[0]}.settings"
  command=(forge plan "$deck" --machine "$machine" --replayed "$(IFS=, && echo "${files[*]}")" "${settings[@]}")
  echo "\$ ${command[*]}"
  "$forge" "${command[@]:1}" | tee "$folder/plan.text"
  sed -n 's/^a step  *\([^(]*\) (.*/summary: a step \1/p; s/^tokens  */, /p' "$folder/plan.text" | head -n 2 | tr -d '\n' && echo
  exit
fi

if [ "$what" = small ]; then
  . "$here/../app/deck_values.sh"
  . "$here/../app/shrink_deck.sh"
  "$forge" show --all --deck "$deck" > "$file.shown"
  shrink_deck "$file.shown" most 1048576
  settings=("${small[@]}" "${mesh[@]}")
fi
printf '%s\n' "${settings[@]}" > "$file.settings"
[ "${#settings[@]}" -gt 0 ] || : > "$file.settings"
code=0
echo "\$ forge replay $deck $* ${settings[*]}"
"$forge" replay "$deck" "$@" "${settings[@]}" --json "$file" 2>&1 | tee "$file.text" || code=$?
if [ "$code" -ne 0 ]; then
  ! grep -q "doesn't fit" "$file.text" || exit 77
  exit "$code"
fi
"${PYTHON:-python3}" - "$file" << 'PY'
import json, sys
r = json.load(open(sys.argv[1]))
speed = r.get("tokens_per_second_per_rank")
print(f"summary: {r['step_seconds']:.4g} s a step" + (f", {speed:.1f} tokens/s a rank" if speed else "") +
      f", collectives {sum(t['collective_seconds'] for t in r['tasks']):.3g} s, gaps {r['gap_seconds']:.3g} s, peak {r['peak_bytes'] / 2**30:.2f} GiB of {r['planned_peak_bytes'] / 2**30:.2f} planned, "
      f"{r['planned_launches']} launches planned")
PY
