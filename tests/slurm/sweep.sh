#!/usr/bin/env bash
# sweep.sh FORGE: jobscripts/sweep.py with an array of Slurm: 12 layouts of two nodes each (FORGE_LONG=1: 40), of which one is illegal, one
# hangs, one has a rank that is killed and one a rank that fails. The sweep is killed, its array is cancelled, and it is asked to end; it goes on each time, to one
# row for each layout. It leaves no process and no job. Later layouts wait for $work/cancelled or $work/asked, so that some are left each time.
set -euo pipefail
forge=$(readlink -f "$1")
. "$(dirname "$0")/common.sh"
if is_long; then count=40; else count=12; fi

write_deck swept 6
swept="$work/sw %A"
{
  echo "mesh.tp,mesh.pp,train.seed"
  for i in $(seq $count); do
    case $i in 3) echo "3,1,$i" ;; *[02468]) echo "2,1,$i" ;; *) echo "1,2,$i" ;; esac
  done
} > "$work/layouts.csv"
cat > "$work/faulty" << FAULTY
#!/usr/bin/env bash
await() { until [ -e \$1 ]; do sleep 0.1; done; }
for word in "\$@"; do
  case \$word in
    output.directory=*/000[12]/run) ;;
    output.directory=*/0004/run) export FORGE_FAULT=hang:1:3 ;;
    output.directory=*/0005/run) export FORGE_FAULT=kill:1:3 ;;
    output.directory=*/0008/run) await $work/asked; export FORGE_FAULT=throw:1:3 ;;
    output.directory=*/000[67]/run) await $work/cancelled ;;
    output.directory=*/run) await $work/asked ;;
  esac
done
exec $forge "\$@"
FAULTY
chmod +x "$work/faulty"

sweep() { exec python3 "$repository/jobscripts/sweep.py" run "$swept" "$@"; }
results() { { find "$swept" -name result.json 2> /dev/null || true; } | wc -l; }
more_than() { [ "$(results)" -gt "$1" ]; }
has_jobs() { grep -qE "^job |in Slurm already" "$work/now"; }
more_or_over() { has_jobs && more_than "$1" || ! kill -0 "$driver"; }
no_jobs() { [ -z "$(squeue -h)" ]; }
# start ARGUMENTS…: the sweep beside this script, until it has jobs and there is another result.
start() {
  local before
  before=$(results)
  (sweep "$@") > "$work/now" 2>&1 &
  driver=$!
  wait_until 180 more_or_over "$before"
}
ended() { # CODE
  local code=0
  wait $driver || code=$?
  [ $code -eq "$1" ] || fail "the sweep ends with $code, not $1: $(cat "$work/now")"
}

start "$work/swept.yaml" --layouts "$work/layouts.csv" --slurm --ranks-per-node 1 --ranks 2 --minutes 2 --at-once 2 --forge "$work/faulty" -- --cpus-per-task=1
kill -KILL $driver
ended 137

! no_jobs || fail "the array doesn't go on without the sweep"
start
[ "$(squeue -h -o %F | sort -u | wc -l)" -eq 1 ] || fail "a second array beside the first: $(squeue)"
scancel -n "$(sed -n 's/.*"name": "\(.*\)".*/\1/p' "$swept/sweep.json")"
ended 75
wait_until 60 no_jobs
more_than 1 && ! more_than $((count - 3)) || fail "$(results) results when the array was cancelled"
touch "$work/cancelled"
start
kill -TERM $driver
ended 75
touch "$work/asked"
wait_until 60 no_jobs
nothing_left
(sweep) > "$work/now" 2>&1 &
driver=$!
ended 0
grep -q "sweep.csv: $((count - 4)) ok, 1 invalid, 1 hang, 2 failed\$" "$work/now" || fail "the sweep says $(cat "$work/now")"
wait_until 30 no_jobs
nothing_left

python3 - "$swept/sweep.csv" $count << 'PY' || fail "other rows: $(cat "$swept/sweep.csv")"
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1], newline="")))
count = int(sys.argv[2])
assert [row["layout"] for row in rows] == [str(n) for n in range(1, count + 1)]
assert [row["train.seed"] for row in rows] == [row["layout"] for row in rows]
classes = {3: "invalid", 4: "hang", 5: "failed", 8: "failed"}
lines = {3: "does not divide", 4: "rank 1: step 3", 5: "", 8: "forge: error (rank 1): fails on purpose"}
for n, row in enumerate(rows, 1):
    assert row["class"] == classes.get(n, "ok") and lines.get(n, "6/6 ") in row["line"], row
    if n not in classes:
        assert row["steps"] == "6" and row["nodes"] == "2" and float(row["tokens_per_second"]) > 0, row
assert rows[4]["code"] in ("137", "143", "6"), rows[4]
PY

# Jobs that end before they write a result are told, and given up.
lost() {
  code=0
  FORGE_MOST_FAILURES=2 python3 "$repository/jobscripts/sweep.py" run "$work/lost" "$@" > "$work/now" 2>&1 || code=$?
}
lost "$work/swept.yaml" --grid train.seed=1 --ranks 2 --minutes 1 --slurm --ranks-per-node 1 --forge "$forge" -- "--output=/nonexistent/%a.out"
[ $code -eq 75 ] && grep -q "1 job of Slurm ended without a result: layout 1; .*/slurm/N.out" "$work/now" || fail "a lost job: $code, $(cat "$work/now")"
lost
[ $code -eq 0 ] && grep -q "1 failed\$" "$work/now" || fail "a job lost twice: $code, $(cat "$work/now")"
finish
