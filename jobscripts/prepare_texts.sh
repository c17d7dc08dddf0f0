#!/usr/bin/env bash
# jobscripts/prepare_texts.sh TEXTS [DIRECTORY [IDS]]: makes DIRECTORY/tokenizer.json (a byte-level BPE of IDS ids, default 4096), train.bin
# and validation.bin (default data/texts) from the .txt files of the folder TEXTS and below it. Every hundredth file is held out for
# validation, or the last one where there are fewer. Each file is a document, which ends with id 0. Does nothing when all three are there.
#
# FORGE names the forge program (default: this tree's, or the one on the PATH).
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
texts=${1:?usage: jobscripts/prepare_texts.sh TEXTS [DIRECTORY [IDS]]}
directory=${2:-data/texts}
ids=${3:-4096}

if [ -f "$directory/tokenizer.json" ] && [ -f "$directory/train.bin" ] && [ -f "$directory/validation.bin" ]; then
  exit 0
fi
. "$root/jobscripts/job.sh"
forge=$(find_forge cpu)
mapfile -d '' -t files < <(find "$texts" -type f -name '*.txt' -size +0 -print0 | sort -z)
if [ "${#files[@]}" -lt 2 ]; then
  echo "prepare_texts: $texts has ${#files[@]} .txt files with text; at least two are needed, one of them for validation" >&2
  exit 2
fi
train=() validation=()
for i in "${!files[@]}"; do
  if [ $((i % 100)) -eq 99 ]; then validation+=("${files[i]}"); else train+=("${files[i]}"); fi
done
if [ "${#validation[@]}" -eq 0 ]; then
  validation=("${train[-1]}")
  unset 'train[-1]'
fi
mkdir -p "$directory"
# A folder may have more files than a command line holds.
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
printf '%s\0' "${train[@]}" > "$lists/train"
printf '%s\0' "${validation[@]}" > "$lists/validation"
"$forge" tokenize --files-from "$lists/train" --train-bpe "$ids" --output "$directory/tokenizer.json"
for part in train validation; do
  "$forge" tokenize --files-from "$lists/$part" --tokenizer "$directory/tokenizer.json" --document-end --output "$directory/$part.bin"
done
