#include "predict/search_space.hpp"

#include <algorithm>
#include <numeric>

#include "config/head_ranks.hpp"
#include "config/recompute.hpp"
#include "config/schedule_name.hpp"
#include "layout/expert_nodes.hpp"
#include "layout/shard_nodes.hpp"

namespace forge {

namespace {

std::vector<std::int64_t> divisors_of(std::int64_t n) {
  std::vector<std::int64_t> list;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0) list.push_back(d);
  return list;
}

constexpr std::int64_t most_microbatch = 64;

// Sizes of tp that cut heads, and the columns of all feed-forward networks.
bool tp_divides(const ModelDeck& m, std::int64_t tp) {
  const bool heads = m.heads % tp == 0 && (m.kv_heads % tp == 0 || tp % m.kv_heads == 0);
  return heads && m.ffn % tp == 0 && m.shared_expert_ffn % tp == 0;
}

// Places of the experts in a stage of `ranks`: etp 1 or tp, ep as many as divide.
std::vector<std::pair<std::int64_t, std::int64_t>> expert_places(const ModelDeck& m, std::int64_t ranks,
                                                                 std::int64_t tp) {
  if (m.experts == 0) return {{1, tp}};
  std::vector<std::pair<std::int64_t, std::int64_t>> list;
  for (const std::int64_t etp : tp > 1 ? std::vector<std::int64_t>{1, tp} : std::vector<std::int64_t>{1})
    for (const std::int64_t ep : divisors_of(std::gcd(m.experts, ranks / etp)))
      if (m.expert_ffn % etp == 0) list.emplace_back(ep, etp);
  return list;
}

// The deck's method of cp, or, where its two levels aren't legal, a ring; where cp spans nodes, two levels as well.
std::vector<MeshDeck> with_methods(const Deck& deck, const MeshDeck& mesh, int ranks_per_node) {
  Deck on_mesh = deck;
  on_mesh.mesh = mesh;
  MeshDeck& m = on_mesh.mesh;
  const auto two_levels = [&] { return m.cp_method == CpMethod::two_level && head_ranks(on_mesh) > 1; };
  if (m.cp_method == CpMethod::two_level && mesh.cp > 1) {
    if (!two_levels()) m.cp_inner = 0;
    if (!two_levels()) m.cp_method = CpMethod::ring;
  }
  std::vector<MeshDeck> list{m};
  if (mesh.cp * mesh.tp <= ranks_per_node || two_levels()) return list;
  m.cp_method = CpMethod::two_level;
  m.cp_inner = 0;
  m.cp_inner = head_ranks(on_mesh);
  if (two_levels()) list.push_back(m);
  return list;
}

}  // namespace

std::vector<MeshDeck> meshes_of(const Deck& deck, int ranks, int ranks_per_node) {
  const ModelDeck& m = deck.model;
  const std::int64_t tokens = deck.train.sequence_tokens, batch = deck.train.global_batch_sequences;
  std::vector<MeshDeck> list;
  for (const std::int64_t pp : divisors_of(ranks)) {
    if (pp > m.layers + m.mtp_depth) continue;
    const std::int64_t stage = ranks / pp;
    for (const std::int64_t tp : divisors_of(stage)) {
      if (!tp_divides(m, tp)) continue;
      for (const std::int64_t cp : divisors_of(stage / tp)) {
        if (cp > 1 && tokens % (2 * cp) != 0) continue;
        const std::int64_t data = stage / tp / cp;
        if (batch % data != 0) continue;
        for (const std::int64_t replicas : divisors_of(data)) {
          const std::int64_t shards = data / replicas;
          // Shards inside a node's reach before replicas begin.
          if (replicas > 1 && shards > 1 && shards * cp * tp % ranks_per_node != 0) continue;
          for (const auto& [ep, etp] : expert_places(m, stage, tp)) {
            MeshDeck mesh = deck.mesh;
            mesh.pp = pp;
            mesh.tp = tp;
            mesh.cp = cp;
            mesh.dp_replicate = replicas;
            mesh.dp_shard = shards;
            mesh.ep = ep;
            mesh.etp = etp;
            Report refused;
            if (!resolve_mesh(mesh, ranks, refused)) continue;
            for (const MeshDeck& one : with_methods(deck, mesh, ranks_per_node)) list.push_back(one);
          }
        }
      }
    }
  }
  return list;
}

namespace {

struct ScheduleChoice {
  ScheduleName name;
  std::int64_t chunks;
};

std::vector<ScheduleChoice> schedules_of(const Deck& deck, std::int64_t pp) {
  if (pp == 1) return {{ScheduleName::one_f_one_b, 1}};
  std::vector<ScheduleChoice> list{
      {ScheduleName::one_f_one_b, 1}, {ScheduleName::zero_bubble, 1}, {ScheduleName::zb_v, 2}};
  for (std::int64_t chunks = 2; pp * chunks <= deck.model.layers && chunks <= 8; chunks *= 2)
    list.push_back({ScheduleName::interleaved, chunks});
  return list;
}

std::vector<std::int64_t> zero_stages(const MeshDeck& mesh) {
  if (mesh.dp_shard * mesh.cp == 1) return {0};
  return {1, 2, 3};
}

// Without ranks of experts dispatch decides nothing. Rows in one hop, or, where a group of ep spans nodes, in two as
// well: these are faster but need more memory.
std::vector<DispatchMethod> dispatches_of(const Deck& deck, const MeshDeck& mesh) {
  if (deck.model.experts == 0 || mesh.ep * mesh.etp == 1) return {deck.model.dispatch};
  Deck automatic = deck;
  automatic.model.dispatch = DispatchMethod::automatic;
  std::vector<DispatchMethod> list{DispatchMethod::all_to_all, DispatchMethod::all_gather};
  if (chosen_expert_nodes(automatic, resolve_mesh(mesh, ranks_of(mesh))) > 1) list.push_back(DispatchMethod::automatic);
  return list;
}

// Passes in pairs, where layers wait for other ranks, and the schedule has them with so many microbatches.
std::vector<Overlap> overlaps_of(const MeshDeck& mesh, ScheduleName schedule, std::int64_t microbatches) {
  const bool waits = mesh.tp * mesh.cp * mesh.ep > 1;
  const int least = least_paired(schedule, static_cast<int>(mesh.pp));
  if (!waits || !has_pairs(schedule) || microbatches < least) return {Overlap::none};
  return {Overlap::none, Overlap::pairs};
}

}  // namespace

std::vector<Choice> choices_of(const Deck& deck, const MeshDeck& mesh) {
  const std::int64_t local = deck.train.global_batch_sequences / (mesh.dp_replicate * mesh.dp_shard);
  const std::vector<DispatchMethod> dispatches = dispatches_of(deck, mesh);
  const std::vector<Recompute> policies = recompute_policies(deck.model);
  std::vector<Choice> list;
  for (const ScheduleChoice& schedule : schedules_of(deck, mesh.pp))
    for (std::int64_t b = 1; b <= std::min(local, most_microbatch) && local % b == 0; b *= 2)
      for (const std::int64_t zero : zero_stages(mesh))
        for (const Recompute recompute : policies)
          for (const DispatchMethod dispatch : dispatches)
            for (const Overlap overlap : overlaps_of(mesh, schedule.name, local / b))
              list.push_back({schedule.name, schedule.chunks, b, zero, recompute, dispatch, overlap});
  return list;
}

void set_choice(Deck& deck, const Deck& resolved, const Choice& choice) {
  deck.schedule = {choice.schedule, choice.chunks, "even", ""};
  deck.train.microbatch_sequences = choice.microbatch;
  deck.train.zero_stage = choice.zero_stage;
  const bool shards_weights = choice.zero_stage == 3;
  deck.train.fp8_gather = shards_weights && resolved.train.fp8_gather;
  deck.train.gather = shards_weights ? resolved.train.gather : GatherPolicy::microbatch;
  deck.train.recompute = choice.recompute;
  deck.train.recompute_full_layers = 0;
  deck.train.overlap = choice.overlap;
  deck.train.accumulate = Accumulation::automatic;
  deck.train.reduction = resolved.train.reduction;
  if (deck.train.reduction == ReductionLevels::two_level)
    drop_illegal_levels(deck, resolve_mesh(deck.mesh, ranks_of(deck.mesh)));
  deck.model.dispatch = choice.dispatch;
}

Deck with_choice(const Deck& resolved, const MeshDeck& mesh, const Choice& choice) {
  Deck deck = resolved;
  deck.mesh = mesh;
  set_choice(deck, resolved, choice);
  return deck;
}

// ZeRO-3 has all keys that another stage refuses.
std::vector<std::string> plain_settings() {
  return {"mesh.pp=1",
          "mesh.dp_replicate=1",
          "mesh.dp_shard=1",
          "mesh.cp=1",
          "mesh.tp=1",
          "mesh.ep=1",
          "mesh.etp=0",
          "schedule.name=1f1b",
          "schedule.virtual_stages=1",
          "schedule.split=even",
          "schedule.file=''",
          "train.microbatch_sequences=1",
          "train.overlap=none",
          "train.zero_stage=3",
          "train.accumulate=automatic",
          "train.reduction=one_level",
          "train.recompute_full_layers=0"};
}

}  // namespace forge
