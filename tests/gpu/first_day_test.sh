#!/usr/bin/env bash
# first_day_test.sh BUILD: first_day.sh itself. With parts made here: results, codes, limits, and going on after a limit, a kill and
# an end; then all of its own parts, rehearsed with BUILD.
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
forge=$build/forge
. "$here/../app/expect.sh"
day=$here/first_day.sh
runs() { if [ -e "$work/$1" ]; then wc -l < "$work/$1"; else echo 0; fi; }
ran() { [ "$(runs "$1")" -eq "$2" ] || fail "$1 ran $(runs "$1") times, not $2"; }

# Parts of a file: correct and broken check, measured and slow measure. A case counts its runs in a file of its name.
cat > "$work/parts" << PARTS
correctness_parts=(correct broken)
parts=(correct broken measured slow)
about() { echo "about \$1"; }
begin() { :; }
finish() { :; }
count() { run_case "\$1" "\$2" bash -c 'echo \$\$ >> "\$1"; eval "\$2"' _ "$work/\$1" "\$3"; }
part_correct() { count one 60 true; count two 60 true; }
part_broken() { count wrong 60 'echo it is wrong; exit 3'; count behind 60 true; }
part_measured() { count missing 60 'echo no such tool; exit 77'; count refused 60 false; }
part_slow() { count first 60 true; count sleeps 300 'test -e "$work/awake" || sleep 300'; count last 60 true; }
PARTS
planted() { "$day" --parts "$work/parts" --output "$work/out" "$@"; }

expect 0 "code 0" planted --part correct
ran one 1
expect 0 "correct: passed, not run again" planted --part correct
ran one 1
expect 0 "code 0" planted --part correct --again
ran one 2
expect 1 "wrong                                        failed" planted --part broken
grep -q "code 3: it is wrong" "$work/out/summary.txt" || fail "the summary doesn't say why"
grep -q "it is wrong" "$work/out/broken/wrong.log" || fail "no log"
ran behind 1
expect 4 "code 4" planted --part measured --part correct
grep -qE "missing +absent [0-9]+ no such tool" "$work/out/summary.txt" || fail "an absent tool is not said: $(cat "$work/out/summary.txt")"

# the part's limit: what it cuts short is no result, and the next call goes on there
expect 3 "slow: unfinished, 2 cases are left" planted --part slow --limit 10
ran first 1
ran last 0
touch "$work/awake"
expect 0 "slow: passed" planted --part slow
ran first 1
ran sleeps 2
ran last 1

# the case's own limit is a failure, and what follows runs; so is the part's, for a case that had it for itself
cat > "$work/parts_limits" << PARTS
$(sed '/^part_slow/d' "$work/parts")
part_slow() { count hangs 2 'sleep 300'; count follows 60 true; }
PARTS
sed -i 's/^correctness_parts=.*/correctness_parts=(slow)/' "$work/parts_limits"
expect 1 "stopped after 2 s" "$day" --parts "$work/parts_limits" --output "$work/limits" --part slow
ran follows 1
rm "$work/awake"
sed '/count first/s/count first 60 true; //' "$work/parts" > "$work/parts_alone"
expect 4 "stopped after 3 s" "$day" --parts "$work/parts_alone" --output "$work/alone" --part slow --limit 3

# a call that is killed: its case goes with it and is run by the next call
"$day" --parts "$work/parts" --output "$work/killed" --part slow > "$work/output" 2>&1 &
killed=$!
for _ in $(seq 600); do
  ! grep -qs sleep "$work/killed/slow/sleeps.log" || break
  sleep 0.1
done
kill -TERM "$killed"
wait "$killed" && fail "a killed call ends with 0"
case_id=$(tail -n 1 "$work/sleeps")
for _ in $(seq 300); do
  kill -0 "$case_id" 2> /dev/null || break
  sleep 0.1
done
! kill -0 "$case_id" 2> /dev/null || fail "the case of a killed call goes on"
[ ! -e "$work/killed/slow/sleeps.result" ] || fail "a killed case has a result"
[ -e "$work/killed/slow/first.result" ] || fail "what came before the kill is lost"
touch "$work/awake"
expect 0 "slow: passed" "$day" --parts "$work/parts" --output "$work/killed" --part slow
ran first 2

expect 2 "legal are correct broken measured slow" planted --part nothing
expect 2 "no such option" planted --fast
expect 2 "legal are 1 to 540" planted --limit 541
expect 2 "there is no $work/none/forge" "$day" --build "$work/none" --output "$work/none"
expect 0 "slow           at most 540 s; passed: about slow" planted --list

# gradients that differ are seen, at the bounds
"$forge" gradients tests/gpu/dense.yaml --set machine.peak_tflops=1 --set machine.workspace_mib=1 --output "$work/a.safetensors" > /dev/null
changed() {
  python3 - "$work/a.safetensors" "$work/b.safetensors" "$1" << 'PY'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
(length,) = struct.unpack("<Q", data[:8])
begin, end = (8 + length + at for at in json.loads(data[8 : 8 + length])["model.norm.weight"]["data_offsets"])
values = list(struct.unpack(f"<{(end - begin) // 8}d", data[begin:end]))
values[0] += float(sys.argv[3]) * max(map(abs, values))
data[begin:end] = struct.pack(f"<{len(values)}d", *values)
open(sys.argv[2], "wb").write(data)
PY
}
compare() { python3 "$here/compare_gradients.py" "$work/b.safetensors" "$work/a.safetensors" "$@"; }
changed 5e-13
expect 0 "largest error" compare --bound 1e-11
changed 5e-11
expect 1 "beyond the bound" compare --bound 1e-11
cp "$work/b.safetensors" "$work/other.safetensors"
changed 9e-11
expect 0 "" compare --twice "$work/other.safetensors"
changed 11e-11
expect 1 "times as far from the reference" compare --twice "$work/other.safetensors"
changed nan
expect 1 "beyond the bound" compare --bound 1e-11
expect 1 "FAILED" compare --twice "$work/other.safetensors"

# a tool that refuses the GPU is absent; one that finds something is not
mkdir "$work/tools"
for end in "77 Device not supported" "99 Invalid read"; do
  printf '#!/bin/sh\necho "========= %s"\nexit 99\n' "${end#* }" > "$work/tools/compute-sanitizer"
  chmod +x "$work/tools/compute-sanitizer"
  expect "${end%% *}" "${end#* }" env "PATH=$work/tools:$PATH" "$here/sanitizer.sh" memcheck "$forge" version
done

# all parts, at tiny sizes
expect 0 "code 0" "$day" --rehearse --build "$build" --reference "$build" --output "$work/rehearsal"
grep '^== \|failed' "$work/output"
for part in replay beside sizes replay_v3 verify gradients tests kernels steps_dense steps_experts ranks program; do
  grep -q "^| $part | passed" "$work/rehearsal/table.md" || fail "$part did not pass: $(cat "$work/rehearsal/summary.txt")"
done
grep -q "^### REHEARSAL" "$work/rehearsal/table.md" || fail "the table of a rehearsal looks like a measurement"
for row in "7B down, weight gradient" "| backward | B=" "AdamW, fp32" "uneven, forward" "| toy | 2 x 32 | forge" "| toy_moe | 2 x 32 | forge" "| toy_llmq | 4 x 32 | forge, FP8" \
  "| toy_full | 4 x 32 | forge" "| generate_toy | toy, bf16: " "tokens/s a rank, collectives" "of their speed alone" "| 405b_planned | a step"; do
  grep -qF "$row" "$work/rehearsal/table.md" || fail "the table has no row $row"
done
# going on with what another machine has sent back
mkdir "$work/moved"
tar -xzf "$work/rehearsal/results.tar.gz" -C "$work/moved"
expect 0 "gradients: passed, not run again" "$day" --rehearse --build "$build" --reference "$build" --output "$work/moved"
cmp -s <(sed 1,3d "$work/rehearsal/table.md") <(sed 1,3d "$work/moved/table.md") ||
  fail "results that moved make another table: $(diff "$work/rehearsal/table.md" "$work/moved/table.md")"
rehearse() { "$day" --rehearse --build "$1" --output "$work/rehearsal" --part program; }
expect 0 "program: passed, not run again" rehearse "$build"
mkdir "$work/other"
{ cat "$forge" && echo; } > "$work/other/forge"
chmod +x "$work/other/forge"
expect 0 "results of another build are in earlier_1" rehearse "$work/other"
grep -q "version  *passed" "$work/output" || fail "another build is not looked at"
[ -e "$work/rehearsal/earlier_1/verify/verdict" ] || fail "earlier results are lost"

# packed, on a machine that has neither Open MPI nor most of the libraries: its folders are hidden in a namespace of mounts
mkdir "$work/build"
cp "$build/forge" "$build/kernel_bench" "$work/build"
if [ ! -x /usr/bin/orterun ]; then
  expect 2 "pack: Open MPI 4 is not installed" "$day" --pack "$work/packed" --build "$work/build" --reference "$build"
  echo "SKIPPED: first_day.sh --pack: it packs Debian 12's Open MPI 4"
  finish && exit
fi
expect 0 "there: forge_first_day/tests/gpu/first_day.sh" "$day" --pack "$work/packed" --build "$work/build" --reference "$build"
expect 2 "is there already" "$day" --pack "$work/packed" --build "$work/build"
expect 2 "there is no $work/none/forge" "$day" --pack "$work/packed2" --build "$work/none"
cat > "$work/bare" << 'BARE'
set -eu
mount -t tmpfs tmpfs "$1" || exit 77
libraries=$(dirname "$(ldconfig -p | awk '/libmpi.so.40 / { print $NF; exit }')")
for folder in "$libraries" /usr/bin; do
  mkdir -p "$1/over$folder" "$1/work$folder"
  mount -t overlay overlay -o "lowerdir=$folder,upperdir=$1/over$folder,workdir=$1/work$folder" "$folder" || exit 77
done
rm -rf "$libraries"/{openmpi,pmix2} "$libraries"/lib{mpi,open-,pmix,hdf5,dnnl,yaml-cpp,boost_program,hwloc,event,sz.,aec,curl}*
rm -f /usr/bin/{mpirun,mpiexec,orte,ompi,ctest}*
cd "$2/forge_first_day"
! command -v mpirun && ldd build/cuda/forge | grep -q 'libmpi.* not found' || { echo "the machine is not bare"; exit 9; }
exec tests/gpu/first_day.sh --rehearse --build build/cuda --output "$1/out" --part gradients --part ranks
BARE
mkdir "$work/mounts"
code=77
if [ "$(id -u)" -eq 0 ]; then
  code=0
  unshare -m bash "$work/bare" "$work/mounts" "$work/packed" > "$work/output" 2>&1 || code=$?
  grep '^== ' "$work/output" || true
fi
if [ "$code" -eq 77 ]; then
  echo "SKIPPED: first_day.sh on a machine without libraries: it needs root and mounts"
elif [ "$code" -ne 0 ] || ! grep -q "== ranks: passed" "$work/output"; then
  fail "what was packed doesn't run, code $code: $(cat "$work/output")"
fi
finish
