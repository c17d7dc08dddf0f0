#include "enumerate.hpp"

#include "core/error.hpp"
#include "layout/mesh_shape.hpp"
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

std::vector<Choice> choices_of(const MeshDeck& mesh) {
  using A = Accumulation;
  using G = GatherPolicy;
  struct ZeroChoice {
    std::int64_t stage;
    A accumulate;
    G gather;
  };
  const std::vector<ZeroChoice> zeros{{0, A::unsharded, G::microbatch}, {1, A::unsharded, G::microbatch},
                                      {1, A::sharded, G::microbatch},   {2, A::sharded, G::microbatch},
                                      {3, A::sharded, G::microbatch},   {3, A::sharded, G::step}};
  std::vector<std::pair<ScheduleName, std::int64_t>> schedules{{ScheduleName::one_f_one_b, 1},
                                                               {ScheduleName::zero_bubble, 1}};
  if (mesh.pp > 1) {
    schedules.push_back({ScheduleName::gpipe, 1});
    schedules.push_back({ScheduleName::interleaved, 2});
    schedules.push_back({ScheduleName::zb_v, 1});
  }
  std::vector<Choice> choices;
  for (const ZeroChoice& zero : zeros)
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      for (const auto& [schedule, chunks] : schedules)
        choices.push_back({zero.stage, zero.accumulate, zero.gather, recompute, schedule, chunks});
  return choices;
}

Deck layout_deck(Deck deck, const MeshDeck& mesh, const Choice& choice, std::size_t number) {
  deck.mesh = mesh;
  deck.mesh.cp_method = static_cast<CpMethod>(number % 3);
  deck.train.zero_stage = choice.zero_stage;
  deck.train.accumulate = choice.accumulate;
  deck.train.gather = choice.gather;
  deck.train.recompute = choice.recompute;
  deck.schedule.name = choice.schedule;
  deck.schedule.chunks_per_stage = choice.chunks;
  deck.schedule.split = number % 4 == 1 ? "balanced" : "even";
  deck.train.microbatch_sequences = number % 5 == 2 ? 2 : 1;
  return deck;
}

bool is_legal(Deck& deck) {
  try {
    Deck checked = deck;
    check_deck(checked, static_cast<int>(ranks_of(deck.mesh)));
    deck = checked;
    return true;
  } catch (const BadInput&) {
    return false;
  }
}

}  // namespace forge::test
