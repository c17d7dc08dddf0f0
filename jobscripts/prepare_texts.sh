#!/usr/bin/env bash
# jobscripts/prepare_texts.sh TEXTS [DIRECTORY [IDS]] [--ext txt,md,…]: makes DIRECTORY/tokenizer.json (a byte-level BPE of IDS ids, default
# 4096), train.bin and validation.bin (default data/texts) from the files of the folder TEXTS and below it with these endings (default txt),
# and says which it leaves out. Every hundredth file is held out for validation, or the last one where there are fewer. Each file is a
# document, which ends with id 0. Where all three are there, made of the same files, nothing is done; made of others, that is an error.
#
# FORGE names the forge program (default: this tree's, or the one on the PATH).
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
refuse() {
  echo "prepare_texts: $*" >&2
  exit 2
}
usage="usage: jobscripts/prepare_texts.sh TEXTS [DIRECTORY [IDS]] [--ext txt,md,…]"
words=() endings=txt
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) echo "$usage" && exit 0 ;;
    --ext) [ $# -ge 2 ] || refuse "--ext: legal: endings, such as --ext txt,md"; endings=$2; shift ;;
    --ext=*) endings=${1#--ext=} ;;
    -*) refuse "$1: $usage" ;;
    *) words+=("$1") ;;
  esac
  shift
done
[ ${#words[@]} -ge 1 ] && [ ${#words[@]} -le 3 ] || refuse "$usage"
texts=${words[0]} directory=${words[1]:-data/texts} ids=${words[2]:-4096}
[[ ${words[1]:-} =~ ^[0-9]+$ ]] && refuse "$usage; ${words[1]} stands where the directory is named"
case $directory in
  "~"*) refuse "$directory: ~ is not expanded in quotes; legal: the home directory's own path" ;;
esac
[ -d "$texts" ] || refuse "$texts is no folder here ($PWD); legal: a folder of texts"
[[ $ids =~ ^[1-9][0-9]*$ ]] || refuse "IDS = $ids; legal: a number of ids, such as 4096"
IFS=, read -r -a list <<< "${endings//./}"
[ "${#list[@]}" -gt 0 ] || refuse "--ext: legal: endings, such as --ext txt,md"
names=()
for ending in "${list[@]}"; do
  [[ $ending =~ ^[A-Za-z0-9_+-]+$ ]] || refuse "--ext $endings: legal: endings apart by commas, such as --ext txt,md"
  names+=(-o -iname "*.$ending")
done

mapfile -d '' -t files < <(find "$texts" -type f \( "${names[@]:1}" \) -size +0 -print0 | sort -z)
# Endings of the others, the most frequent first: "1917 .rst, 2 without".
left=$(find "$texts" -type f -size +0 ! \( "${names[@]:1}" \) -printf '%f\n' | awk '
  { n = split(tolower($0), part, "."); ending = n > 1 && part[n] != "" && part[n - 1] part[n] != part[n] ? "." part[n] : "without"; count[ending]++ }
  END { for (e in count) print count[e], e }' | sort -k1,1nr -k2 | head -n 8 | paste -sd, | sed 's/,/, /g')
said="${#files[@]} files (.${endings//,/, .}) of $texts${left:+; left out: $left (--ext ENDINGS takes others)}"
[ "${#files[@]}" -ge 2 ] || refuse "$said; at least two with text are needed, one of them for validation"

source="$(realpath "$texts")
$endings
$ids
$(printf '%s\0' "${files[@]}" | xargs -0 stat -c '%n %s %Y' | sha256sum | cut -c 1-64)"
if [ -f "$directory/tokenizer.json" ] && [ -f "$directory/train.bin" ] && [ -f "$directory/validation.bin" ]; then
  made=$(cat "$directory/source" 2> /dev/null) || made="files that nobody wrote down"
  if [ "$made" = "$source" ]; then
    echo "$directory is made of $said already"
    exit 0
  fi
  mapfile -t was <<< "$made"
  refuse "$directory is there already, made of ${was[0]}${was[1]:+ (--ext ${was[1]}, ${was[2]} ids)}, not of these ${#files[@]} files as they are now;" \
    "legal: another directory, or remove that one"
fi
. "$root/jobscripts/job.sh"
forge=$(find_forge cpu)
echo "$said"
train=() validation=()
for i in "${!files[@]}"; do
  if [ $((i % 100)) -eq 99 ]; then validation+=("${files[i]}"); else train+=("${files[i]}"); fi
done
if [ "${#validation[@]}" -eq 0 ]; then
  validation=("${train[-1]}")
  unset 'train[-1]'
fi
mkdir -p "$directory" || refuse "$directory can't be made; legal: a directory that is new or made by this script"
rm -f "$directory/source"
# A folder may have more files than a command line holds.
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
printf '%s\0' "${train[@]}" > "$lists/train"
printf '%s\0' "${validation[@]}" > "$lists/validation"
# Of each file the line that says what it is; the deck's lines come once, at the end.
"$forge" tokenize --files-from "$lists/train" --train-bpe "$ids" --output "$directory/tokenizer.json" > "$lists/said"
head -n 1 "$lists/said"
for part in train validation; do
  "$forge" tokenize --files-from "$lists/$part" --tokenizer "$directory/tokenizer.json" --document-end --output "$directory/$part.bin" \
    > "$lists/$part.said"
  head -n 1 "$lists/$part.said"
done
sed -n '2,$p' "$lists/train.said"
echo "  and its data.validation_files: [$directory/validation.bin]"
printf '%s\n' "$source" > "$directory/source"
