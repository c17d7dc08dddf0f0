# The parts of first_cluster.sh, for first_day.sh, which sources this after its options.
. "$here/first_day_parts.sh"
correctness_parts=(start layouts)
parts=(start calibrate layouts runs fit)

about() {
  case $1 in
    start) echo "all ranks start, and see the output directory" ;;
    calibrate) echo "collectives in the groups and sizes of five decks, into calibrate/measured.yaml for forge plan --machine" ;;
    layouts) echo "loss and all gradients of 12 layouts in fp64 against one rank" ;;
    runs) echo "20 steps of five decks, with a profile of the last" ;;
    fit) echo "calibrate/measured.yaml fitted to the runs, into fit/fitted.yaml" ;;
  esac
}

ranks=$CLUSTER_RANKS
[[ $ranks =~ ^[1-9][0-9]*$ ]] || refuse "--ranks '$ranks': legal is the number of ranks, which Slurm has not said"
[ $((ranks % 8)) -eq 0 ] || { [ "$rehearse" = yes ] && [ "$ranks" -eq 4 ]; } || refuse "--ranks $ranks: legal are multiples of 8"
# Started so unless --launch says otherwise; -n N stands behind it.
read -ra launch <<< "$CLUSTER_LAUNCH"
if [ "${#launch[@]}" -eq 0 ] && [ -n "${SLURM_JOB_ID:-}" ]; then
  launch=(srun --mpi=pmix --kill-on-bad-exit=1 --distribution=block:block)
  [ -z "${SLURM_CPUS_PER_TASK:-}" ] || launch+=("--cpus-per-task=$SLURM_CPUS_PER_TASK")
elif [ "${#launch[@]}" -eq 0 ]; then
  . "$root/jobscripts/launcher.sh"
  [ "$rehearse" = no ] || { ranks_share_cores && export OMP_NUM_THREADS=1; }
  launch=(mpirun)
fi
machine=${CLUSTER_MACHINE:-$(planned_machine)}

# Ranks of a rehearsal may share GPUs, and a step of it hardly anything.
if [ "$rehearse" = yes ]; then export FORGE_SHARE_GPU=1; fi
all=("${launch[@]}" -n "$ranks")
one=("${launch[@]}" -n 1)

begin() {
  [ -x "$forge" ] || refuse "there is no $forge; build it, or name a build with --build"
  put_aside_results
  {
    date -u +'date %Y-%m-%d %H:%M UTC'
    echo "program $("$forge" version 2>&1 | head -n 1)"
    echo "commit $(git rev-parse HEAD 2> /dev/null || echo unknown)"
    echo "ranks $ranks, started by: ${launch[*]}"
    echo "machine like $machine"
    echo "rehearsal $rehearse"
  } > "$out/machine.txt"
  cat "$out/machine.txt"
}

finish() {
  for file in calibrate/measured.yaml fit/fitted.yaml; do [ ! -e "$out/$file" ] || echo "== for forge plan --machine: $out/$file"; done
}

part_start() {
  run_case folder 120 "${all[@]}" test -e "$out/machine.txt"
  run_case program 120 "${all[@]}" "$forge" version
}

# The decks: name, ranks that share a sequence or a pipeline, sequences of each such group, settings.
decks=(
  "7b_32gpu_fsdp 1 8 mesh.dp_shard=-1"
  "7b_32gpu_hsdp 1 8 mesh.dp_replicate=2 mesh.dp_shard=-1"
  "13b_32gpu_tp4_pp2 8 16 mesh.dp_shard=-1"
  "qwen3_30b_16gpu 1 4 model.layers=24 mesh.dp_shard=-1 mesh.ep=8"
  "llama3_8b_16k_16gpu 8 4 mesh.pp=1 mesh.cp=2 mesh.tp=4 mesh.dp_shard=-1 train.zero_stage=3"
)
if [ "$rehearse" = yes ]; then
  decks=("${decks[@]:2:2}")
  . "$here/../app/deck_values.sh"
  . "$here/../app/shrink_deck.sh"
fi

# deck NAME RANKS SEQUENCES SETTINGS…: $out/decks/NAME.yaml, the deck for the job's ranks with these settings and a batch of SEQUENCES for
# each RANKS; of a rehearsal a small twin of it.
deck() {
  local name=$1 words=("${@:4}") settings=() steps=20 word
  [ ! -s "$out/decks/$name.yaml" ] || return 0
  if [ "$rehearse" = yes ]; then
    local pp replicate shard cp tp axes small mesh
    "$forge" show --all --deck "inputs/$name.yaml" > "$out/decks/$name.shown"
    shrink_deck "$out/decks/$name.shown" exactly "$ranks"
    settings=("${small[@]}" "${mesh[@]}") words=() steps=5
  else
    words+=("train.global_batch_sequences=$((ranks / $2 * $3))")
  fi
  words+=("train.steps=$steps" optimizer.warmup_steps=1 "data.files=[$out/decks/ids.bin]" data.dtype=uint32
    "output.directory=$out/runs/$name" "output.profile=$steps" checkpoint.directory=none)
  for word in "${words[@]}"; do settings+=(--set "$word"); done
  "$forge" show "inputs/$name.yaml" --ranks "$ranks" --deck "${settings[@]}" > "$out/decks/$name.text"
  sed '1,/^resolved deck/d' "$out/decks/$name.text" > "$out/decks/$name.yaml"
}

# All decks, and random ids for them to read; into `files` and `names`.
make_decks() {
  local line
  files=() names=()
  mkdir -p "$out/decks"
  if [ ! -s "$out/decks/ids.bin" ]; then
    "$python" - "$out/decks" "$rehearse" << 'PY'
import array, os, random, sys
below, count = (250, 40000) if sys.argv[2] == "yes" else (32000, 4000000)
for name, below, count in (("small", 97, 100000), ("ids", below, count)):
    with open(f"{sys.argv[1]}/{name}.new", "wb") as file:
        array.array("I", random.Random(1).choices(range(below), k=count)).tofile(file)
    os.rename(file.name, f"{sys.argv[1]}/{name}.bin")
PY
  fi
  for line in "${decks[@]}"; do
    # shellcheck disable=SC2086
    deck $line
    names+=("${line%% *}")
    files+=("$out/decks/${line%% *}.yaml")
  done
}

part_calibrate() {
  make_decks
  run_case collectives 500 "$here/summed_up.sh" '^median error' "${all[@]}" "$forge" calibrate "${files[@]}" \
    --machine "$machine" --output "$folder/measured.yaml"
}

part_runs() {
  local name
  make_decks
  for name in "${names[@]}"; do
    run_case "$name" 400 "$here/timed_run.sh" "$out/runs/$name" "${all[@]}" "$forge" "$out/decks/$name.yaml"
  done
}

# rehearsed_run NAME: a copy of the run, whose steps take what is planned: processors are no such machine, and a fit to them is chance.
rehearsed_run() {
  local run=$folder/$1 seconds
  mkdir -p "$run"
  cp "$out/runs/$1/deck.yaml" "$run"
  "$forge" plan "$run/deck.yaml" --ranks "$ranks" --machine "$out/calibrate/measured.yaml" --json "$run/plan.json" > /dev/null
  seconds=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["step_seconds"])' "$run/plan.json")
  sed -E "s/(\"step_seconds\": )[^,}]*/\1$seconds/" "$out/runs/$1/metrics.jsonl" > "$run/metrics.jsonl"
}
part_fit() {
  local name run runs=()
  make_decks
  for name in "${names[@]}"; do
    [ -s "$out/runs/$name.result" ] && grep -q "^passed" "$out/runs/$name.result" || continue
    run=$out/runs/$name
    [ "$rehearse" = no ] || { rehearsed_run "$name" && run=$folder/$name; }
    runs+=(--fit "$run")
  done
  run_case fit 300 "$here/summed_up.sh" 'compute_speed [0-9]' "$forge" plan "${files[0]}" --ranks "$ranks" --machine "$out/calibrate/measured.yaml" \
    "${runs[@]}" --output "$folder/fitted.yaml"
}

part_layouts() {
  make_decks
  export LAYOUT_ALL="${all[*]}" LAYOUT_ONE="${one[*]}"
  export LAYOUT_SETTINGS="train.global_batch_sequences=$ranks data.files=[$out/decks/small.bin] data.dtype=uint32"
  layout zero_3 dense train.zero_stage=3
  layout ep_4 experts mesh.ep=4
  if [ "$rehearse" = yes ]; then return; fi
  layout hsdp dense mesh.dp_replicate=2 train.zero_stage=2
  layout tp_4 dense mesh.tp=4
  layout pp_4 dense mesh.pp=4
  layout cp_4_ring dense mesh.cp=4
  layout cp_4_all_to_all dense mesh.cp=4 mesh.cp_method=all_to_all
  layout cp_4_two_level dense mesh.cp=4 mesh.cp_method=two_level mesh.cp_inner=2
  layout pp_2_tp_2_zero_bubble dense mesh.pp=2 mesh.tp=2 schedule.name=zero_bubble
  layout cp_2_tp_2_zero_1 dense mesh.cp=2 mesh.tp=2 train.zero_stage=1
  layout ep_2_etp_2 experts mesh.tp=2 mesh.ep=2 mesh.etp=2
  layout pp_2_ep_2_zero_1 experts mesh.pp=2 mesh.ep=2 train.zero_stage=1
  layout all_gather_ep_4 experts mesh.ep=4 model.dispatch=all_gather
}
