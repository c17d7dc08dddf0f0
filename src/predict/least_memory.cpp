#include "predict/least_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "config/schedule_name.hpp"
#include "core/error.hpp"
#include "core/in_parallel.hpp"
#include "plan/rank_memory.hpp"
#include "predict/search_space.hpp"
#include "schedule/check_deck.hpp"

namespace forge {

Deck smallest_on(const Deck& deck, const MeshDeck& mesh) {
  const bool shards = mesh.dp_shard * mesh.cp > 1;
  Deck least = with_choice(
      deck, mesh,
      {ScheduleName::one_f_one_b, 1, 1, shards ? 3 : 0, Recompute::full, deck.model.dispatch, Overlap::none});
  const std::int64_t data = mesh.dp_replicate * mesh.dp_shard;
  least.train.batch_ramp.clear();
  least.train.global_batch_sequences = std::min(deck.train.global_batch_sequences, 2 * mesh.pp * data);
  return least;
}

std::optional<std::size_t> bytes_on(Deck deck, int ranks, int capability, bool all_stages) {
  try {
    check_deck(deck, ranks);
  } catch (const BadInput&) {
    return {};
  }
  const RunSetup setup = on_devices(make_setup(deck), capability);
  return all_stages ? rank_memory(setup, RunKind::training).total()
                    : planned_memory(setup, RunKind::training, 0).total();
}

namespace {

// Of some meshes; none where no one is legal.
std::optional<LeastLayout> least_of(const Deck& resolved, int ranks, int capability,
                                    const std::vector<MeshDeck>& meshes) {
  constexpr std::size_t compared = 4;  // of which all stages are planned
  std::vector<std::optional<std::size_t>> first(meshes.size());
  in_parallel(meshes.size(),
              [&](std::size_t i) { first[i] = bytes_on(smallest_on(resolved, meshes[i]), ranks, capability, false); });
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < meshes.size(); ++i)
    if (first[i]) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return *first[a] < *first[b]; });
  std::optional<LeastLayout> least;
  for (std::size_t i = 0; i < std::min<std::size_t>(compared, order.size()); ++i) {
    Deck deck = smallest_on(resolved, meshes[order[i]]);
    const auto bytes = bytes_on(deck, ranks, capability, true);
    if (bytes && (!least || *bytes < least->bytes)) least = LeastLayout{std::move(deck), *bytes};
  }
  return least;
}

// Of meshes that differ in the places of experts alone the two whose ranks have the smallest part of a layer's experts.
std::vector<MeshDeck> with_least_experts(std::vector<MeshDeck> meshes) {
  const auto place = [](const MeshDeck& m) { return std::tuple(m.tp, m.cp, -m.ep * m.etp, m.etp); };
  std::sort(meshes.begin(), meshes.end(), [&](const MeshDeck& a, const MeshDeck& b) { return place(a) < place(b); });
  std::vector<MeshDeck> least;
  for (const MeshDeck& m : meshes) {
    const std::size_t n = least.size();
    if (n < 2 || std::pair(least[n - 2].tp, least[n - 2].cp) != std::pair(m.tp, m.cp)) least.push_back(m);
  }
  return least;
}

}  // namespace

std::optional<LeastLayout> least_layout(const Deck& resolved, int ranks, int ranks_per_node, int capability) {
  const std::int64_t most = std::max<std::int64_t>(ranks_per_node, resolved.mesh.tp * resolved.mesh.cp);
  std::map<std::int64_t, std::vector<MeshDeck>> by_stages;
  for (const MeshDeck& m : meshes_of(resolved, ranks, ranks_per_node))
    if (m.dp_replicate == 1 && m.tp * m.cp <= most) by_stages[m.pp].push_back(m);
  for (auto& [pp, meshes] : by_stages) meshes = with_least_experts(std::move(meshes));
  // Shards need no more than stages, which keep several microbatches.
  for (const auto& [pp, meshes] : by_stages)
    if (auto least = least_of(resolved, ranks, capability, meshes)) return least;
  return {};
}

std::optional<std::size_t> least_bytes(const Machine& machine, const Deck& resolved, int ranks) {
  const auto least = least_layout(resolved, ranks, machine.ranks_per_node, machine.capability);
  return least ? std::optional(least->bytes) : std::nullopt;
}

}  // namespace forge
