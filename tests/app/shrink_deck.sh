# Small twins of decks, for the scripts beside this one and those of tests/slurm: source it after deck_values.sh.

# shrink_axes most|exactly RANKS AXES…: the largest one is halved until the ranks fit. exactly: powers of two only, and dp_shard, the
# third, takes what is left.
shrink_axes() {
  local how=$1 ranks=$2
  shift 2
  echo "$@" | awk -v most="$ranks" -v exactly="$([ "$how" = exactly ] && echo 1 || echo 0)" '{
    for (i = 1; exactly && i <= NF; ++i) for (power = 1; power <= $i; power *= 2) rounded[i] = power
    for (i = 1; exactly && i <= NF; ++i) $i = rounded[i]
    for (;;) {
      product = 1; largest = 1
      for (i = 1; i <= NF; ++i) { product *= $i; if ($i > $largest) largest = i }
      if (product <= most) break
      $largest = int($largest / 2)
    }
    if (exactly) $3 *= most / product
    print
  }'
}

# The largest ep, halved from the deck's, whose groups of etp fit the ranks of a stage.
shrink_ep() {
  local ep=$1 etp=$2 ranks=$3
  while [ $((ranks % (ep * etp))) -ne 0 ]; do ep=$((ep / 2)); done
  echo "$ep"
}

# Stages of a layout string: the first with a layer more, then one layer each, multi-token layers and the head on the last.
layout_string() {
  local stages=$1 last=$2
  case $stages in
    1) echo even ;;
    2) echo "Ett|t${last}L" ;;
    *) echo "Ett|(t|)*$((stages - 2))t${last}L" ;;
  esac
}

# Settings of the experts' dimensions and of latent attention, a word a line.
small_experts() {
  local shown=$1 ep=$2 experts chosen
  set_key() { printf '%s\n' --set "model.$1=$2"; }
  if [ "$(value "$shown" model attention)" = mla ]; then
    set_key head_dim 0
    [ "$(value "$shown" model q_lora)" -eq 0 ] || set_key q_lora 12
    set_key kv_lora 16; set_key nope_dim 4; set_key rope_dim 2; set_key value_dim 4
  fi
  experts=$((ep * (ep > 4 ? 2 : 3)))
  chosen=$(value "$shown" model experts_per_token)
  if [ "$(value "$shown" model router_groups)" -gt 1 ]; then
    [ $experts -ge 6 ] || experts=6
    set_key router_groups $((experts % 4 == 0 ? 4 : 3))
    set_key router_groups_used 2
  fi
  set_key experts "$experts"
  set_key experts_per_token $((chosen > 3 ? 3 : chosen))
  set_key expert_ffn "$([ "$(value "$shown" model expert_ffn)" -eq "$(value "$shown" model ffn)" ] && echo 48 || echo 24)"
  [ "$(value "$shown" model shared_expert_ffn)" -eq 0 ] || set_key shared_expert_ffn 40
  [ "$(value "$shown" model first_dense_layers)" -eq 0 ] || set_key first_dense_layers 1
}

# shrink_deck SHOWN most|exactly RANKS: settings that make a small twin of the deck whose `forge show` is in the file SHOWN. Into the
# variables pp, replicate, shard, cp, tp, ranks (their product), axes (those of experts, in words), small and mesh (settings).
shrink_deck() {
  local shown=$1
  read -r pp replicate shard cp tp <<< "$(shrink_axes "$2" "$3" $(mesh_column "$shown" 2))"
  if [ $((pp * replicate * shard * cp * tp)) -eq 1 ] && [ "$(value "$shown" train zero_stage)" -gt 0 ]; then shard=2; fi
  ranks=$((pp * replicate * shard * cp * tp))
  local chunks heads=8 kv_heads=2
  chunks=$(value "$shown" schedule virtual_stages)
  [ "$(value "$shown" model kv_heads)" != "$(value "$shown" model heads)" ] || kv_heads=$heads
  local vocabulary=257 # no multiple of tp; where a token is a byte, samples are text
  [ "$(value "$shown" model vocabulary)" -ne 256 ] && [ "$(value "$shown" model tokenizer)" = '""' ] || vocabulary=256
  local microbatches=$((2 * pp))  # a multiple of pp, for interleaved schedules
  small=(--set model.layers=$((pp * chunks + 1)) --set model.width=32 --set model.heads=$heads --set model.kv_heads=$kv_heads
    --set model.head_dim=4 --set model.ffn=48 --set model.vocabulary=$vocabulary --set model.tokenizer= --set model.rope_original_positions=0
    --set model.rope_scaling=none --set model.rope_factor=1 --set model.rope_mscale=0 --set model.rope_mscale_all_dim=0
    --set model.initial_std=0.2 --set train.sequence_tokens=64
    --set train.microbatch_sequences=1 --set train.global_batch_sequences=$((replicate * shard * microbatches))
    --set train.validation_sequences=$((replicate * shard))
    --set machine.workspace_mib=1 --set machine.peak_tflops=1 --set optimizer.warmup_steps=1)
  [ "$(value "$shown" train recompute_full_layers)" -le 1 ] || small+=(--set train.recompute_full_layers=1)
  [ "$(value "$shown" model sliding_window_full_every)" -eq 0 ] || small+=(--set model.sliding_window=24 --set model.sliding_window_full_every=2)
  [ "$(value "$shown" model query_position_scale)" = 0 ] ||
    small+=(--set model.rope_scaling=yarn --set model.rope_factor=4 --set model.rope_original_positions=16)
  [ "$(value "$shown" model rope_fraction)" != 0.25 ] || small+=(--set model.rope_fraction=0.5)
  [ "$(value "$shown" model no_rope_every)" -eq 0 ] || small+=(--set model.no_rope_every=2)
  [ "$(value "$shown" model rope_scaling)" != longrope ] ||  # three quarters of heads of 8 turn: three frequencies
    small+=(--set model.head_dim=8 --set model.rope_scaling=longrope --set model.rope_factor=32 --set model.rope_original_positions=16
      --set "model.rope_short_factor=[1, 1, 1]" --set "model.rope_long_factor=[1, 2.5, 40]")
  [ "$(value "$shown" model full_attention_interval)" -eq 0 ] || small+=(--set model.full_attention_interval=2 --set model.linear_key_heads=8
    --set model.linear_value_heads=16 --set model.linear_key_dim=4 --set model.linear_value_dim=6)
  local experts more=()
  axes=""
  experts=$(value "$shown" model experts)
  mesh=()
  if [ "$experts" -gt 0 ]; then
    local ep etp
    etp=$([ "$(value "$shown" mesh etp)" -eq 1 ] && echo 1 || echo "$tp")
    ep=$(shrink_ep "$(value "$shown" mesh ep)" "$etp" $((ranks / pp)))
    mapfile -t more < <(small_experts "$shown" "$ep")
    small+=("${more[@]}")
    axes=", ep $ep x etp $etp"
    mesh=(--set mesh.ep="$ep" --set mesh.etp="$etp")
  fi
  local split
  split=$(value "$shown" schedule split)
  case $split in
    *E*) split=$(layout_string $((pp * chunks)) "$([ "$(value "$shown" model mtp_depth)" -eq 0 ] || echo m)") ;;
  esac
  mesh+=(--set "schedule.split=$split" --set mesh.pp=$pp --set mesh.dp_replicate=$replicate --set mesh.dp_shard=$shard --set mesh.cp=$cp
    --set mesh.tp=$tp)
  if [ "$(value "$shown" mesh cp_method)" = two_level ]; then  # of two ranks each, or one
    if [ "$cp" -ge 4 ]; then mesh+=(--set mesh.cp_inner=2); else mesh+=(--set mesh.cp_method=ring --set mesh.cp_inner=0); fi
  fi
}

# shrink_data SHOWN TOKENS HELD_OUT: into the variable `data`, settings of a twin's data: these token files; where the deck's documents end by
# an index, a Megatron pair of TOKENS' directory, which its file `text` becomes, with a mask where the deck has one.
shrink_data() {
  local shown=$1 place
  data=(--set "data.files=[$2]" --set data.dtype=uint16)
  [ "$(value "$shown" data validation_files)" = "[]" ] || data+=(--set "data.validation_files=[$3]")
  [ "$(value "$shown" data document_ends)" = index ] || return 0
  place=$(dirname "$2")
  [ -e "$place/megatron.idx" ] || python3 "$(dirname "${BASH_SOURCE[0]}")/data_formats.py" "$place/text" "$place"
  data=(--set "data.files=[$place/megatron.bin]")
  if [ "$(value "$shown" data packing)" = pairs ]; then
    data=(--set "data.files=[$place/pairs.bin]" --set "data.mask_files=[$place/pairs.mask.npy]")
    return 0
  fi
  [ "$(value "$shown" data mask_files)" = "[]" ] || data+=(--set "data.mask_files=[$place/mask.npy]")
}

# draw_deck NUMBER: one of inputs/, drawn by commit; another for each number below 5.
draw_deck() {
  local commit decks=("$repository"/inputs/*.yaml)
  commit=$(git -C "$repository" rev-parse HEAD 2> /dev/null) || commit=$(cat "${decks[@]}" | sha1sum)
  echo "${decks[$((16#${commit:$((8 * $1)):8} % ${#decks[@]}))]}"
}
