#!/usr/bin/env bash
# tests/gpu/first_day.sh [OPTIONS]: what is to be known of forge on a machine with one GPU, in parts of at most nine minutes,
# the most valuable first. Each part is a list of cases; each case has a log and a result of its own under the output
# directory, and is not run a second time: a part that met its limit goes on where it was when the script is called again.
#   --list            the parts, each with its state
#   --part NAME       this part only; may be given several times
#   --again           finished parts are run again from their beginning
#   --output DIR      where logs, results, table.md and summary.txt go; default runs/first_day
#   --build DIR       the build to look at; default build/cuda
#   --reference DIR   a build for the CPU, whose gradients are compared with; default build/cpu
#   --limit SECONDS   a lower limit of each part
#   --jobs N          as many cases of correctness at a time, which share the GPU; default 1. Measurements run alone
#   --rehearse        all parts with the CPU build at tiny sizes: tries the script, measures nothing
#   --pack FILE       instead: packs what a machine without a network needs into FILE, a .tar.xz or else a folder
#   --with-nccl       packs NCCL too, for a machine without PyTorch's
# Ends with 0: all passed; 1: a case of correctness failed; 2: wrong options; 3: parts are unfinished; 4: only measurements failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
}
refuse() {
  echo "${FIRST_HOURS:-first_day}: $*; --help tells more" >&2
  exit 2
}

chosen=() again=no listing=no rehearse=no pack="" with_nccl=no limit=540 jobs=1
out=runs/first_day build="" reference=build/cpu parts_file=$here/first_day_parts.sh
while [ $# -gt 0 ]; do
  case $1 in
    --help) usage && exit 0 ;;
    --list) listing=yes ;;
    --again) again=yes ;;
    --rehearse) rehearse=yes ;;
    --with-nccl) with_nccl=yes ;;
    --part | --output | --build | --reference | --limit | --jobs | --pack | --parts)
      [ $# -ge 2 ] || refuse "$1 needs a value"
      case $1 in
        --part) chosen+=("$2") ;;
        --output) out=$2 ;;
        --build) build=$2 ;;
        --reference) reference=$2 ;;
        --limit) limit=$2 ;;
        --jobs) jobs=$2 ;;
        --pack) pack=$2 ;;
        --parts) parts_file=$2 ;;  # for the test of this script: other parts than those of first_day_parts.sh
      esac
      shift
      ;;
    *) refuse "$1: no such option" ;;
  esac
  shift
done
[[ $limit =~ ^[1-9][0-9]*$ ]] && [ "$limit" -le 540 ] || refuse "--limit $limit: legal are 1 to 540 seconds"
[[ $jobs =~ ^[1-9][0-9]*$ ]] && [ "$jobs" -le 64 ] || refuse "--jobs $jobs: legal are 1 to 64"
if [ -z "$build" ]; then
  build=build/cuda
  [ "$rehearse" = no ] || build=build/cpu
fi

# Paths from where the command was typed, or else from the repository's folder, where everything runs.
absolute() { realpath -m -- "$1"; }
found() { if [ -e "$1" ]; then absolute "$1"; else (cd "$root" && absolute "$1"); fi; }
build=$(found "$build") reference=$(found "$reference") parts_file=$(absolute "$parts_file")
if [ -n "$pack" ]; then exec "$here/pack.sh" "$(absolute "$pack")" "$build" "$reference" "$with_nccl"; fi
out=$(absolute "$out")
cd "$root"
python=${PYTHON:-python3}

# Correctness parts say so: correctness_parts holds their names, parts all of them in their order (first_day_parts.sh).
. "$parts_file"
if [ "${#chosen[@]}" -eq 0 ]; then chosen=("${parts[@]}"); fi
for part in "${chosen[@]}"; do
  [[ " ${parts[*]} " = *" $part "* ]] || refuse "--part $part: legal are ${parts[*]}"
done

# ---- cases and parts

# A call that is stopped takes its cases with it; they have no result.
stop() {
  local cases
  mapfile -t cases < <(jobs -p)
  [ "${#cases[@]}" -eq 0 ] || kill -TERM "${cases[@]}" 2> /dev/null || true
  wait
  exit 143
}
trap stop TERM INT HUP

at_once=1        # cases of the part at a time
case_number=0    # cases that this call has begun in the part

# note CASE RESULT SECONDS [REASON]: keeps a result, whole or not at all.
note() {
  printf '%s %s %s\n' "$2" "$3" "${4:-}" > "$folder/$1.new"
  mv "$folder/$1.new" "$folder/$1.result"
  printf '  %-44s %-8s %5s s  %s\n' "$1" "$2" "$3" "${4:-}"
}

# A case's own line about its result, or how many tests a program of GoogleTest has left out.
said_of() { sed -n 's/^summary: //p; s/^.*SKIPPED.* \([0-9]* tests\{0,1\}\), listed below.*/\1 skipped/p' "$1" | head -n 1; }

# The last line of a log that says something.
last_words() { grep '[^[:space:]]' "$1" | tail -n 1 | cut -c 1-160; }

# run_case NAME LIMIT COMMAND…: runs it unless it has a result, beside others where the part may.
run_case() {
  printf '%s\n' "$1" >> "$folder/cases"
  [ ! -e "$folder/$1.result" ] || return 0
  while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n || true; done
  [ "$((part_end - SECONDS))" -gt 0 ] || return 0
  case_number=$((case_number + 1))
  one_case "$@" &
  [ "$at_once" -gt 1 ] || wait "$!" || true
}

# one_case NAME LIMIT COMMAND…: a process of its own. Code 0: passed; 77: absent, its last line says what is missing; its own
# limit: "limit". A case that the end of the part cuts short has no result, and is run by the next call, unless it was the
# first of this call, which had the part for itself.
one_case() {
  local name=$1 most=$2 left=$((part_end - SECONDS)) start=$SECONDS code=0 running=""
  shift 2
  trap 'kill -TERM "$running" 2> /dev/null || true; exit 143' TERM
  [ "$left" -ge "$most" ] || most=$left
  echo "\$ $*" > "$folder/$name.log"
  timeout --kill-after=10 "$most" "$@" >> "$folder/$name.log" 2>&1 < /dev/null &
  running=$!
  wait "$running" || code=$?
  case $code in
    0) note "$name" passed $((SECONDS - start)) "$(said_of "$folder/$name.log")" ;;
    77) note "$name" absent $((SECONDS - start)) "$(last_words "$folder/$name.log")" ;;
    124 | 137)
      [ "$most" -eq "$left" ] && [ "$case_number" -gt 1 ] || note "$name" limit $((SECONDS - start)) "stopped after $most s"
      ;;
    *) note "$name" failed $((SECONDS - start)) "code $code: $(last_words "$folder/$name.log")" ;;
  esac
}

# How many cases of the part have no result.
cases_left() {
  local name left=0
  while read -r name; do [ -e "$folder/$name.result" ] || left=$((left + 1)); done < "$folder/cases"
  echo "$left"
}

# What the results of the part's cases come to.
verdict() {
  local name all=absent cases=0 absent=0
  while read -r name; do
    cases=$((cases + 1))
    case $(cut -d ' ' -f 1 "$folder/$name.result") in
      failed | limit) all=failed ;;
      passed) [ "$all" = failed ] || all=passed ;;
      absent) absent=$((absent + 1)) ;;
    esac
  done < "$folder/cases"
  if [ "$absent" -gt 0 ]; then all="$all, $absent of $cases cases absent"; fi
  echo "$all"
}

run_part() {
  local pending
  folder=$out/$1
  if [ "$again" = yes ]; then rm -rf "$folder"; fi
  if [ -e "$folder/verdict" ]; then
    echo "== $1: $(cat "$folder/verdict"), not run again (--again)"
    return
  fi
  echo "== $1"
  mkdir -p "$folder"
  : > "$folder/cases"
  at_once=1 case_number=0 part_end=$((SECONDS + limit))
  [[ " ${correctness_parts[*]} " != *" $1 "* ]] || at_once=$jobs
  [ "$at_once" -eq 1 ] || export OMP_NUM_THREADS=$((($(nproc) + jobs - 1) / jobs))  # of the CPU build
  "part_$1"
  wait
  [ -s "$folder/cases" ] || run_case no_case 1 false
  wait
  pending=$(cases_left)
  if [ "$pending" -gt 0 ]; then
    echo "== $1: unfinished, $pending cases are left; the next call goes on"
  else
    verdict > "$folder/verdict"
    echo "== $1: $(cat "$folder/verdict")"
  fi
}

# state_of PART: passed, failed or absent, and how many cases were absent; unfinished (with failures); not run.
state_of() {
  local folder=$out/$1
  if [ -e "$folder/verdict" ]; then
    cat "$folder/verdict"
  elif grep -qsE '^(failed|limit) ' "$folder"/*.result; then
    echo "unfinished, with failures"
  elif [ -d "$folder" ]; then
    echo unfinished
  else
    echo "not run"
  fi
}

summary() {
  local part name
  for part in "${parts[@]}"; do
    printf '%-16s %s\n' "$part" "$(state_of "$part")"
    [ -e "$out/$part/cases" ] || continue
    while read -r name; do
      [ ! -e "$out/$part/$name.result" ] || printf '  %-44s %s\n' "$name" "$(cat "$out/$part/$name.result")"
    done < <(sort -u "$out/$part/cases")
  done
}

exit_code() {
  local part code=0 measured=0 unfinished=0
  for part in "${chosen[@]}"; do
    case $(state_of "$part") in
      *fail*) if [[ " ${correctness_parts[*]} " = *" $part "* ]]; then code=1; else measured=4; fi ;;
      unfinished | "not run") unfinished=3 ;;
    esac
  done
  for part in "$code" "$measured" "$unfinished"; do
    [ "$part" -eq 0 ] || { echo "$part" && return; }
  done
  echo 0
}

if [ "$listing" = yes ]; then
  for part in "${parts[@]}"; do
    printf '%-14s at most %s s; %s: %s\n' "$part" "$limit" "$(state_of "$part")" "$(about "$part")"
  done
  exit 0
fi
mkdir -p "$out"
begin
for part in "${chosen[@]}"; do run_part "$part"; done
summary > "$out/summary.txt"
finish
code=$(exit_code)
echo "== $out/summary.txt: $(grep -cE '^  .* passed ' "$out/summary.txt" || true) cases passed, $(
  grep -cE '^  .* (failed|limit) ' "$out/summary.txt" || true) failed, $(
  grep -cE '^  .* absent ' "$out/summary.txt" || true) absent; code $code"
exit "$code"
