# The parts of first_day.sh, which sources this: their names in order, begin and finish, and for each part a function that
# calls run_case NAME LIMIT COMMAND… for its cases.
correctness_parts=(verify gradients tests sanitizer ranks program)
parts=(verify gradients tests sanitizer kernels steps_dense steps_experts kernel_times ranks program)

about() {
  case $1 in
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

# steps MODEL…: forge and PyTorch in turn, one process after the other, so that each has the device for itself.
steps() {
  local model contender device=cuda
  if [ "$rehearse" = yes ]; then device=cpu; fi
  for model in "$@"; do
    for contender in forge pytorch forge_again forge_cudnn forge_own_experts forge_fp8 forge_cuda_cores; do
      [ "$rehearse" = no ] || [[ $contender != forge_* ]] || continue
      run_case "${model}_$contender" 260 "$python" "$here/steps.py" "$contender" "$model" --device "$device" \
        --forge "$forge" --folder "$folder/$model.$contender" --output "$folder/$model.$contender.json"
    done
  done
}
part_steps_dense() { if [ "$rehearse" = yes ]; then steps toy; else steps 7b_8layers_1k 7b_8layers_4k; fi; }
part_steps_experts() { if [ "$rehearse" = yes ]; then steps toy_moe; else steps qwen3_30b_4layers; fi; }

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
