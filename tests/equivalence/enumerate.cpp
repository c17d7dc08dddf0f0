#include "enumerate.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "../model/recompute_lists.hpp"
#include "config/schedule_name.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "layout/mesh_shape.hpp"
#include "layout/split.hpp"
#include "models.hpp"
#include "schedule/check_deck.hpp"

namespace forge::test {

std::vector<MeshDeck> meshes_of(int ranks) {
  std::vector<MeshDeck> meshes;
  for (int pp = 1; pp <= ranks; ++pp)
    for (int replicate = 1; pp * replicate <= ranks; ++replicate)
      for (int shard = 1; pp * replicate * shard <= ranks; ++shard)
        for (int cp = 1; pp * replicate * shard * cp <= ranks; ++cp) {
          const int others = pp * replicate * shard * cp;
          if (ranks % others != 0) continue;
          MeshDeck mesh;
          mesh.pp = pp;
          mesh.dp_replicate = replicate;
          mesh.dp_shard = shard;
          mesh.cp = cp;
          mesh.tp = ranks / others;
          meshes.push_back(mesh);
        }
  return meshes;
}

std::vector<Choice> zero_choices() {
  using A = Accumulation;
  using G = GatherPolicy;
  std::vector<Choice> choices;
  const auto add = [&](std::int64_t stage, A accumulate, G gather) {
    choices.push_back({.zero_stage = stage, .accumulate = accumulate, .gather = gather});
  };
  add(0, A::unsharded, G::microbatch);
  add(1, A::unsharded, G::microbatch);
  add(1, A::sharded, G::microbatch);
  add(2, A::sharded, G::microbatch);
  add(3, A::sharded, G::microbatch);
  add(3, A::unsharded, G::microbatch);
  add(3, A::sharded, G::step);
  return choices;
}

Recompute recompute_of(std::size_t number) {
  constexpr std::array policies{Recompute::none, Recompute::selective, Recompute::full};
  return policies[number % policies.size()];
}

std::vector<Choice> choices_of(const MeshDeck& mesh) {
  std::vector<std::pair<ScheduleName, std::int64_t>> schedules{{ScheduleName::one_f_one_b, 1},
                                                               {ScheduleName::zero_bubble, 1}};
  if (mesh.pp > 1) {
    schedules.push_back({ScheduleName::gpipe, 1});
    schedules.push_back({ScheduleName::interleaved, 2});
    schedules.push_back({ScheduleName::zb_v, 1});
  }
  std::vector<Choice> choices;
  for (const Choice& zero : zero_choices())
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      for (const auto& [schedule, chunks] : schedules) {
        Choice choice = zero;
        choice.recompute = recompute;
        choice.schedule = schedule;
        choice.chunks = chunks;
        choices.push_back(choice);
      }
  return choices;
}

namespace {

std::int64_t stages_of(const Deck& deck) {
  return deck.mesh.pp * (deck.schedule.name == ScheduleName::zb_v ? 2 : deck.schedule.virtual_stages);
}

// Heads that tp divides, and the ranks that exchange them, too; key heads that one of tp and they divide the other.
void fit_heads(Deck& deck) {
  ModelDeck& m = deck.model;
  const std::int64_t tp = deck.mesh.tp;
  const CpMethod method = deck.mesh.cp_method;
  const std::int64_t cp = method == CpMethod::all_to_all                            ? deck.mesh.cp
                          : method == CpMethod::two_level && deck.mesh.cp_inner > 0 ? deck.mesh.cp_inner
                                                                                    : 1;
  const bool all = m.kv_heads == m.heads;
  if (m.heads % (tp * cp) != 0) m.heads = tp * cp;
  if (all) m.kv_heads = m.heads;
  const std::int64_t of_rank = std::max<std::int64_t>(m.kv_heads / tp, 1);
  const bool split = m.kv_heads % tp == 0 || tp % m.kv_heads == 0;
  if (m.heads % m.kv_heads != 0 || !split || (of_rank % cp != 0 && cp % of_rank != 0)) m.kv_heads = 1;
  if (m.ffn % tp != 0) m.ffn = m.ffn / tp * tp;
  if (m.shared_expert_ffn % tp != 0) m.shared_expert_ffn = m.shared_expert_ffn / tp * tp;
}

}  // namespace

void fit_model(Deck& deck) {
  fit_heads(deck);
  TrainDeck& t = deck.train;
  const MeshDeck& mesh = deck.mesh;
  const std::int64_t tokens = mesh.cp * std::lcm(mesh.tp, mesh.cp > 1 ? std::int64_t{2} : std::int64_t{1});
  if (t.sequence_tokens % tokens != 0) t.sequence_tokens = (t.sequence_tokens + tokens - 1) / tokens * tokens;
  if (deck.model.positions == PositionKind::learned) deck.model.max_positions = t.sequence_tokens + 3;
  // Interleaved 1F1B works in groups of pp microbatches.
  const std::int64_t group = deck.schedule.name == ScheduleName::interleaved ? mesh.pp : 1;
  const std::int64_t unit = mesh.dp_replicate * mesh.dp_shard * t.microbatch_sequences * group;
  if (t.global_batch_sequences % unit != 0)
    t.global_batch_sequences = (t.global_batch_sequences + unit - 1) / unit * unit;
}

std::string split_string(const Deck& deck, std::uint64_t key) {
  const auto stages = static_cast<std::size_t>(stages_of(deck));
  std::vector<std::int64_t> at(stages, 0), depths(stages, 0);
  for (std::int64_t l = 0; l < deck.model.layers; ++l) ++at[mix(key, static_cast<std::uint64_t>(l)) % stages];
  std::size_t last = stages - 1;
  while (at[last] == 0) --last;
  for (std::int64_t d = 0; d < deck.model.mtp_depth; ++d)
    ++depths[last + mix(key, static_cast<std::uint64_t>(deck.model.layers + d)) % (stages - last)];
  std::string text = "E";
  const auto add = [&](char letter, std::int64_t times) {
    if (times > 0) text += times == 1 ? std::string(1, letter) : letter + ("*" + std::to_string(times));
  };
  for (std::size_t s = 0; s < stages; ++s) {
    if (s > 0) text += '|';
    add('t', at[s]);
    add('m', depths[s]);
  }
  return text + "L";
}

void set_two_levels(MeshDeck& mesh, std::size_t number) {
  if (mesh.cp % 2 != 0 || mesh.cp < 4) return;
  mesh.cp_method = CpMethod::two_level;
  mesh.cp_inner = number % 2 == 0 ? 2 : mesh.cp / 2;
}

Deck layout_deck(Deck deck, const MeshDeck& mesh, const Choice& choice, std::size_t number) {
  deck.mesh = mesh;
  deck.mesh.cp_method = static_cast<CpMethod>(number % 3);
  if (number % 7 > 3) set_two_levels(deck.mesh, number);
  deck.train.zero_stage = choice.zero_stage;
  deck.train.accumulate = choice.accumulate;
  deck.train.gather = choice.gather;
  deck.train.recompute = choice.recompute;
  const bool selective = choice.recompute == Recompute::selective;
  if (selective && deck.model.attention == AttentionKind::mla && number % 2 == 1)
    deck.train.recompute = Recompute::latent;
  if (selective && (number % 5 == 1 || number % 5 == 3)) deck.train.recompute = recompute_list(deck.model, number / 5);
  if (choice.recompute != Recompute::full && number % 5 > 2) deck.train.recompute_full_layers = 1;
  deck.schedule.name = choice.schedule;
  deck.schedule.virtual_stages = choice.chunks;
  deck.train.microbatch_sequences = number % 5 == 2 ? 2 : 1;
  if (number % 4 == 1) deck.schedule.split = "balanced";
  if (number % 4 == 3) deck.schedule.split = split_string(deck, number);
  fit_model(deck);
  return deck;
}

namespace {

// Stages that hold nothing are legal where the split is written out.
void write_out_empty_stages(Deck& deck) {
  const std::string& split = deck.schedule.split;
  if (split != "even" && split != "balanced") return;
  const auto stages = split_layers(split, static_cast<int>(deck.model.layers), static_cast<int>(stages_of(deck)),
                                   static_cast<int>(deck.model.mtp_depth));
  if (std::none_of(stages.begin(), stages.end(), [](const StageContent& s) { return s.passes_through(); })) return;
  std::string text = "E";
  for (std::size_t s = 0; s < stages.size(); ++s)
    text += (s > 0 ? "|" : "") + std::string(static_cast<std::size_t>(stages[s].layers), 't') +
            std::string(static_cast<std::size_t>(stages[s].mtp_layers), 'm');
  deck.schedule.split = text + "L";
}

}  // namespace

std::string illegality(Deck& deck) {
  write_out_empty_stages(deck);
  try {
    Deck checked = deck;
    check_deck(checked, static_cast<int>(ranks_of(deck.mesh)));
    deck = checked;
    return "";
  } catch (const BadInput& error) {
    return error.what();
  }
}

std::vector<LayoutCase> all_layouts(int most, bool every, int parts, int part) {
  const auto models = test_models();
  std::vector<LayoutCase> cases;
  std::size_t number = 0, taken = 0;
  for (int ranks = 1; ranks <= most; ++ranks)
    for (const MeshDeck& mesh : meshes_of(ranks)) {
      const auto choices = choices_of(mesh);
      const std::size_t of_zero = choices.size() / zero_choices().size();
      for (std::size_t c = 0; c < choices.size(); ++c) {
        // Models and variations change with periods that have no factor in common with those of the choices.
        const std::size_t variation = static_cast<std::size_t>(mix(3, number++) % 60);
        const std::size_t drawn = mix(7, number - c % of_zero) % of_zero;
        if (!every && c % of_zero != drawn) continue;
        if (static_cast<int>(++taken % static_cast<std::size_t>(parts)) != part) continue;
        const TestModel& model = models[mix(5, number) % models.size()];
        cases.push_back({model.name, layout_deck(model.deck, mesh, choices[c], variation)});
      }
    }
  return cases;
}

std::vector<MeshDeck> expert_meshes(const Deck& deck, const MeshDeck& mesh) {
  std::vector<MeshDeck> meshes;
  const std::int64_t ranks = ranks_of(mesh) / mesh.pp;
  for (std::int64_t etp = 1; etp <= mesh.tp; ++etp)
    for (std::int64_t ep = 1; ep <= ranks; ++ep) {
      if (mesh.tp % etp != 0 || deck.model.expert_ffn % etp != 0 || deck.model.experts % ep != 0) continue;
      MeshDeck candidate = mesh;
      candidate.ep = ep;
      candidate.etp = etp;
      Report report;
      if (resolve_mesh(candidate, ranks_of(mesh), report)) meshes.push_back(candidate);
    }
  return meshes;
}

namespace {

LayoutCase drawn_case(const TestModel& model, const MeshDeck& mesh, std::uint64_t key) {
  const auto choices = choices_of(mesh);
  return {model.name, layout_deck(model.deck, mesh, choices[mix(key, 0) % choices.size()], mix(key, 1) % 60)};
}

}  // namespace

std::vector<LayoutCase> moe_layouts(int most, int draws, int parts, int part) {
  const auto models = moe_models();
  std::vector<LayoutCase> cases;
  std::uint64_t number = 0;
  for (int ranks = 1; ranks <= most; ++ranks)
    for (const MeshDeck& mesh : meshes_of(ranks))
      for (const MeshDeck& with_experts : expert_meshes(models.front().deck, mesh))
        for (int draw = 0; draw < draws; ++draw) {
          if (static_cast<int>(++number % static_cast<std::uint64_t>(parts)) != part) continue;
          cases.push_back(drawn_case(models[mix(41, number) % models.size()], with_experts, mix(43, number)));
        }
  return cases;
}

std::vector<LayoutCase> drawn_moe_layouts(int ranks, std::uint64_t key) {
  const auto models = moe_models();
  std::vector<LayoutCase> cases;
  std::uint64_t number = mix(key, static_cast<std::uint64_t>(ranks));
  for (const MeshDeck& mesh : meshes_of(ranks)) {
    ++number;
    const TestModel& model = models[mix(47, number) % models.size()];
    const auto meshes = expert_meshes(model.deck, mesh);
    if (!meshes.empty()) cases.push_back(drawn_case(model, meshes[mix(49, number) % meshes.size()], mix(53, number)));
  }
  return cases;
}

}  // namespace forge::test
