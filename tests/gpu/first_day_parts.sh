# The parts of first_day.sh, which sources this: their names in order, begin and finish, and for each part a function that
# calls run_case NAME LIMIT COMMAND… for its cases.
correctness_parts=(replay beside sizes replay_v3 verify gradients tests sanitizer ranks program)
parts=(replay beside sizes replay_v3 verify gradients tests sanitizer kernels steps_dense steps_experts kernel_times ranks program)

about() {
  case $1 in
    replay) echo "one rank of decks of 16 to 1024 GPUs alone, without the others' traffic and with the plan's seconds of it" ;;
    beside) echo "products, attention and rows beside a kernel that moves bytes as a collective does: overlap_speed of machines" ;;
    sizes) echo "whole steps of models from 4.7 M to 8 B, of LLMQ's and KempnerForge's cases, long context and experts, and generation" ;;
    replay_v3) echo "one rank of DeepSeek-V3 on 1024 GPUs, for 141 GB" ;;
    verify) echo "every problem of verify/ in fp64 and fp32, against PyTorch's references" ;;
    gradients) echo "gradients in fp64, fp32 and bf16 against the CPU build's, for every problem of verify/" ;;
    tests) echo "the executables of label gpu" ;;
    sanitizer) echo "compute-sanitizer on a tiny dense model and one with experts" ;;
    kernels) echo "a table of kernels, beside PyTorch" ;;
    steps_dense) echo "whole steps of 8 layers of a 7B model, 1024 and 4096 tokens, beside compiled PyTorch" ;;
    steps_experts) echo "whole steps of 4 layers of Qwen3-30B-A3B, beside compiled PyTorch" ;;
    kernel_times) echo "the time of every kernel of a step" ;;
    ranks) echo "4 NCCL ranks on one GPU: layouts against one rank" ;;
    program) echo "the scripts of tests/app" ;;
  esac
}

forge=$build/forge
quick=(--set machine.peak_tflops=1 --set machine.workspace_mib=32)
if [ "$rehearse" = yes ]; then quick=(--set machine.peak_tflops=1 --set machine.workspace_mib=1); fi

# Problems of verify/; of a rehearsal one dense and one with experts.
problems() {
  local problem
  if [ "$rehearse" = yes ]; then
    printf 'llama\nmixtral\n'
    return
  fi
  for problem in verify/*/reference.yaml; do basename "$(dirname "$problem")"; done
}

# Results of another build are put aside: parts of two programs make no table.
put_aside_results() {
  local digest number=1 part
  digest=$(sha256sum < "$forge" | cut -d ' ' -f 1)
  if [ -e "$out/program_digest" ] && [ "$(cat "$out/program_digest")" != "$digest" ]; then
    while [ -e "$out/earlier_$number" ]; do number=$((number + 1)); done
    mkdir "$out/earlier_$number"
    for part in "${parts[@]}" summary.txt table.md machine.txt; do
      [ ! -e "$out/$part" ] || mv "$out/$part" "$out/earlier_$number"
    done
    echo "== $out: results of another build are in earlier_$number"
  fi
  echo "$digest" > "$out/program_digest"
}

# What the machine and the program are, for the table; and libraries that were carried here, where some are missing.
begin() {
  [ -x "$forge" ] || refuse "there is no $forge; build it, or name a build with --build"
  . "$here/libraries.sh"
  use_carried_libraries "$root/carried" "$out/libraries" "$build" "$reference"
  if "$forge" version | grep -q '^forge [^,]*, cuda' && [ ! -e /dev/nvidia0 ] && ! nvidia-smi -L > /dev/null 2>&1; then
    refuse "there is no GPU here for $forge; --rehearse tries the script with a build for the CPU"
  fi
  put_aside_results
  {
    date -u +'date %Y-%m-%d %H:%M UTC'
    echo "program $("$forge" version 2>&1 | head -n 1)"
    echo "commit $(cat "$root/carried/commit" 2> /dev/null || git rev-parse HEAD 2> /dev/null || echo unknown)"
    echo "gpu $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null || echo none)"
    echo "processor $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
    echo "pytorch $("$python" -c 'import torch; print(torch.__version__)' 2> /dev/null || echo none)"
    echo "rehearsal $rehearse"
  } > "$out/machine.txt"
  cat "$out/machine.txt"
}

# results.tar.gz has all that a later call needs, here or on another machine, without what the cases themselves wrote.
finish() {
  "$python" "$here/table.py" "$out" > "$out/table.md"
  echo "== table: $out/table.md"
  (cd "$out" && find . -maxdepth 2 -type f \( -name '*.txt' -o -name '*.md' -o -name '*.log' -o -name '*.result' -o -name '*.tsv' \
    -o -name '*.json' -o -name verdict -o -name cases -o -name program_digest \) -print0 |
    tar -czf results.tar.gz.new --null --files-from=- && mv results.tar.gz.new results.tar.gz)
  echo "== all of it, for another machine's --output: $out/results.tar.gz"
}

# The machine whose plan prices the other ranks' traffic.
planned_machine() {
  case $(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null) in
    *H200*) echo h200_4 ;;
    *B200*) echo b200_8 ;;
    *A100*) echo a100_8 ;;
    *) echo h100_8 ;;
  esac
}

# replayed CASE DECK RANK STEPS SEQUENCES WIRES…: a rank of the deck with each wire; of its steps so many global sequences, fewer than
# the deck's where a step would take minutes.
replayed() {
  local name=$1 deck=inputs/$2.yaml rank=$3 steps=$4 wire size=whole options=()
  if [ "$rehearse" = yes ]; then
    steps=1 size=small
  else
    options=(--set "train.global_batch_sequences=$5")
  fi
  for wire in "${@:6}"; do
    [ "$rehearse$wire" != yestime ] || [[ $name = *_first ]] || continue
    [ "$wire" != time ] || options+=(--machine "$(planned_machine)")
    run_case "${name}_$wire" 100 "$here/replay.sh" "$forge" "$size" "$folder/${name}_$wire.json" "$deck" --rank "$rank" \
      --steps "$steps" --wire "$wire" "${options[@]}"
  done
}

# planned CASE DECK RANKS…: a step of all ranks from the replays of these cases, on the machine.
planned() {
  run_case "$1_planned" 60 "$here/replay.sh" "$forge" plan "$folder" "inputs/$2.yaml" "$(planned_machine)" "${@:3}"
}

part_replay() {
  replayed qwen3_30b qwen3_30b_16gpu_fsdp 0 2 512 none time
  replayed moe_32gpu moe_32gpu 0 3 256 none time
  replayed 70b 70b_32gpu 0 2 64 none time
  replayed 405b_first llama3_405b_1024gpu 0 1 128 none time
  replayed 405b_middle llama3_405b_1024gpu 512 1 128 none
  replayed 405b_last llama3_405b_1024gpu 1023 1 128 none
  planned qwen3_30b qwen3_30b_16gpu_fsdp qwen3_30b
  planned moe_32gpu moe_32gpu moe_32gpu
  planned 70b 70b_32gpu 70b
  planned 405b llama3_405b_1024gpu 405b_first 405b_middle 405b_last
}
part_replay_v3() {
  replayed v3_first deepseek_v3_1024gpu 0 1 1024 none time
  replayed v3_middle deepseek_v3_1024gpu 512 1 1024 none
  replayed v3_last deepseek_v3_1024gpu 1023 1 1024 none
  planned v3 deepseek_v3_1024gpu v3_first v3_middle v3_last
}

part_beside() {
  local group blocks tiny=() counts=(4 8 16 24)
  if [ "$rehearse" = yes ]; then tiny=(--tiny) counts=(4); fi
  for group in products attention rows; do
    run_case "$group" 100 bash -c '"$1" "${@:3}" > "$2"' _ "$build/kernel_bench" "$folder/$group.tsv" "${tiny[@]}" "$group"
    for blocks in "${counts[@]}"; do
      run_case "${group}_$blocks" 100 bash -c '"$1" "${@:5}" > "$2" && "$4" "$(dirname "$0")/beside.py" "$3" "$2"' "$here/." \
        "$build/kernel_bench" "$folder/${group}_$blocks.tsv" "$folder/$group.tsv" "$python" "${tiny[@]}" --beside "$blocks" "$group"
    done
  done
}

part_verify() {
  local problem
  for problem in $(problems); do run_case "$problem" 120 "$forge" verify "verify/$problem"; done
}

part_gradients() {
  local problem
  for problem in $(problems | if [ "$rehearse" = yes ]; then tail -n 1; else cat; fi); do
    run_case "$problem" 180 "$here/gradients.sh" "$forge" "$reference/forge" "verify/$problem" "$folder"
  done
}

# The tests of the build with label gpu: lines "name command…". ctest knows them; where it isn't there, the list that pack.sh made.
listed_tests() {
  if [ -e "$build/gpu_tests" ]; then
    cat "$build/gpu_tests"
  else
    "$python" "$here/list_tests.py" "$build" "$([ "$rehearse" = yes ] && echo '(cpu|gpu)' || echo gpu)"
  fi
}

# run_listed LIMIT NAME COMMAND…: a test of the list; "absent" stands there for what was not built.
run_listed() {
  local most=$1 name=$2
  shift 2
  if [ "$1" = absent ]; then
    run_case "$name" 10 bash -c 'echo "$1"; exit 77' _ "${*:2}"
  else
    run_case "$name" "$most" "$@"
  fi
}

part_tests() {
  local name command
  while read -r name command; do
    [[ $command != tests/app/* ]] || continue
    [ "$rehearse" = no ] || [ "$name" = optim ] || continue
    # shellcheck disable=SC2086
    run_listed 300 "$name" $command
  done < <(listed_tests)
}

part_program() {
  local name command
  if [ "$rehearse" = yes ]; then
    run_case version 60 "$forge" version
    return
  fi
  while read -r name command; do
    [[ $command = tests/app/* && $name != verify ]] || continue  # part verify does that
    case $name in
      app_install | app_job_scripts | app_quickstart)  # they need the build's folder, and the network
        [ ! -d "$root/carried" ] || command="absent it is not for a packed build"
        ;;
      app_hangs | app_kills)
        command="absent its deadlines are those of ranks that start within a second, which have no GPU to share"
        ;;
    esac
    # Several ranks have the one GPU.
    [[ $command = absent* ]] || command="$here/shared_gpu.sh $command"
    # shellcheck disable=SC2086
    run_listed 500 "$name" $command
  done < <(listed_tests)
}

part_sanitizer() {
  local tool model
  for tool in memcheck racecheck initcheck synccheck; do
    for model in dense experts; do
      run_case "${tool}_$model" 240 "$here/sanitizer.sh" "$tool" "$forge" "tests/gpu/$model.yaml" \
        --set train.precision=bf16 --set train.steps=2 --set "output.directory=$folder/${tool}_$model.run" "${quick[@]}"
    done
  done
}

part_kernels() {
  local group tiny=()
  if [ "$rehearse" = yes ]; then tiny=(--tiny); fi
  for group in products attention rows experts matrices; do
    run_case "$group" 150 bash -c '"$1" "${@:3}" > "$2"' _ "$build/kernel_bench" "$folder/$group.tsv" "${tiny[@]}" "$group"
    run_case "pytorch_$group" 150 "$python" "$here/peer_kernels.py" "$folder/$group.tsv" "$folder/pytorch_$group.tsv"
  done
}

# steps LIMIT CONTENDERS MODEL…: each model by forge and PyTorch in turn, one process after the other, so that each has the device
# for itself.
steps() {
  local model contender device=cuda limit=$1 contenders=$2
  shift 2
  if [ "$rehearse" = yes ]; then device=cpu; fi
  for model in "$@"; do
    for contender in $contenders; do
      run_case "${model}_$contender" "$limit" "$python" "$here/steps.py" "$contender" "$model" --device "$device" \
        --forge "$forge" --folder "$folder/$model.$contender" --output "$folder/$model.$contender.json"
    done
  done
}
contenders="forge pytorch"
[ "$rehearse" = yes ] || contenders="$contenders forge_again forge_cudnn forge_own_experts forge_fp8 forge_cuda_cores"
# generated MODEL PROMPT LENGTH: one text by a model in bf16.
generated() {
  run_case "generate_$1" 100 "$python" tests/benchmark/generate.py --forge "$forge" --model "$1" --precision bf16 --prompt "$2" \
    --length "$3" --repeats 1
}
# The cases that say most first.
part_sizes() {
  if [ "$rehearse" = yes ]; then
    steps 100 "forge pytorch" toy
    steps 100 "forge forge_fp8" toy_llmq toy_full
    generated toy 8 8
    return
  fi
  steps 100 "forge pytorch" gpt2_size
  steps 100 "forge forge_fp8 pytorch" 7b_8layers_4k
  steps 100 "forge forge_fp8" qwen25_7b_llmq
  generated llama_1b 512 256
  steps 100 "forge pytorch" 7b_3layers_32k llama_1b olmoe_4layers qwen3_30b_4layers
  steps 100 forge 7b_kempnerforge
  steps 100 "forge forge_fp8" qwen25_05b_llmq qwen25_15b_llmq qwen25_3b_llmq
  steps 100 "forge pytorch" 162m tiny 7b_3layers_128k
}
# part_steps…: of a rehearsal toys.
part_steps_dense() { if [ "$rehearse" = yes ]; then steps 260 "$contenders" toy; else steps 260 "$contenders" 7b_8layers_1k 7b_8layers_4k; fi; }
part_steps_experts() { if [ "$rehearse" = yes ]; then steps 260 "$contenders" toy_moe; else steps 260 "$contenders" qwen3_30b_4layers; fi; }

part_kernel_times() {
  local model models=(7b_8layers_4k qwen3_30b_4layers)
  if [ "$rehearse" = yes ]; then models=(toy_moe); fi
  for model in "${models[@]}"; do
    run_case "$model" 180 "$python" "$here/kernel_times.py" "$model" --forge "$forge" --folder "$folder/$model" --output "$folder/$model.tsv"
  done
}

# layout CASE MODEL KEY=VALUE…: four ranks against one rank of the same build; MODEL is a deck beside this file.
layout() {
  local name=$1 model=$2 word options=()
  shift 2
  for word in "$@"; do options+=(--set "$word"); done
  run_case "$name" 120 "$here/layout.sh" "$forge" "tests/gpu/$model.yaml" "$folder/$name" "${options[@]}"
}

part_ranks() {
  layout zero_3 dense mesh.dp_shard=4 train.zero_stage=3
  layout ep_4 experts mesh.dp_shard=4 mesh.ep=4
  if [ "$rehearse" = yes ]; then return; fi
  layout tp_4 dense mesh.tp=4
  layout pp_4 dense mesh.pp=4
  layout cp_4_ring dense mesh.cp=4
  layout cp_4_all_to_all dense mesh.cp=4 mesh.cp_method=all_to_all
  layout cp_4_two_level dense mesh.cp=4 mesh.cp_method=two_level mesh.cp_inner=2
  layout pp_2_tp_2_zero_bubble dense mesh.pp=2 mesh.tp=2 schedule.name=zero_bubble
  layout cp_2_tp_2 dense mesh.cp=2 mesh.tp=2
  layout hsdp_2_2 dense mesh.dp_replicate=2 mesh.dp_shard=2 train.zero_stage=2
  layout ep_2_etp_2 experts mesh.tp=2 mesh.dp_shard=2 mesh.ep=2 mesh.etp=2
  layout pp_2_ep_2_zero_1 experts mesh.pp=2 mesh.dp_shard=2 mesh.ep=2 train.zero_stage=1
  layout all_gather_ep_4 experts mesh.dp_shard=4 mesh.ep=4 model.dispatch=all_gather
  local test
  for test in comm train; do
    local command="$root/tests/mpirun.sh 4 $here/shared_gpu.sh $build/test_$test"
    [ -x "$build/test_$test" ] || command="absent $build/test_$test is not built"
    # shellcheck disable=SC2086
    run_listed 300 "test_$test" $command
  done
}
