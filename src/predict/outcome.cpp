#include "predict/outcome.hpp"

#include <algorithm>
#include <functional>

#include "config/keys.hpp"
#include "config/schedule_name.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "schedule/check_deck.hpp"

namespace forge {

namespace {

RankMemory memory_of(const Machine& machine, const RunSetup& setup) {
  RankMemory memory = rank_memory(setup, RunKind::training, [&](MemoryPlan& plan, const RankShare& share) {
    double elements = 0;
    for (const LocalUnit& unit : share.units) elements += static_cast<double>(unit.elements);
    const auto activations = static_cast<double>(plan.of(Category::activations));
    plan.of(Category::activations) = static_cast<std::size_t>(machine.program.activation_memory * activations);
    plan.of(Category::gradients) += static_cast<std::size_t>(machine.program.gradient_memory * elements);
  });
  if (machine.cores_per_node > 0) memory.libraries = {process_allowance()};
  return memory;
}

}  // namespace

std::size_t usable_memory(const Machine& machine, int ranks) {
  if (machine.cores_per_node == 0) return usable_bytes(machine.memory_bytes);
  return machine.memory_bytes / to_size(std::min(ranks, machine.ranks_per_node));
}

namespace {

using Change = std::function<void(Deck&)>;

// Moves a factor of two from one axis to another, where the first has it.
Change moved(std::int64_t MeshDeck::*from, std::int64_t MeshDeck::*to) {
  return [=](Deck& d) {
    if (d.mesh.*from % 2 != 0) return;
    d.mesh.*from /= 2;
    d.mesh.*to *= 2;
  };
}

std::vector<Change> changes() {
  std::vector<Change> list;
  const std::vector<std::int64_t MeshDeck::*> axes = {&MeshDeck::pp, &MeshDeck::dp_replicate, &MeshDeck::dp_shard,
                                                      &MeshDeck::cp, &MeshDeck::tp};
  for (const auto from : axes)
    for (const auto to : axes)
      if (from != to) list.push_back(moved(from, to));
  list.push_back([](Deck& d) { d.mesh.ep *= 2; });
  list.push_back([](Deck& d) { d.mesh.ep = std::max<std::int64_t>(1, d.mesh.ep / 2); });
  list.push_back([](Deck& d) { d.mesh.etp = d.mesh.etp == 1 ? d.mesh.tp : 1; });
  list.push_back([](Deck& d) { d.train.microbatch_sequences *= 2; });
  list.push_back(
      [](Deck& d) { d.train.microbatch_sequences = std::max<std::int64_t>(1, d.train.microbatch_sequences / 2); });
  for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full})
    list.push_back([r](Deck& d) { d.train.recompute = r; });
  for (const std::int64_t stage : {0, 1, 2, 3})
    list.push_back([stage](Deck& d) {
      d.train.zero_stage = stage;
      d.train.accumulate = Accumulation::automatic;
    });
  list.push_back([](Deck& d) {
    d.train.gather = d.train.gather == GatherPolicy::step ? GatherPolicy::microbatch : GatherPolicy::step;
  });
  for (const ScheduleName name :
       {ScheduleName::one_f_one_b, ScheduleName::zero_bubble, ScheduleName::zb_v, ScheduleName::interleaved})
    list.push_back([name](Deck& d) {
      if (d.mesh.pp == 1) return;
      d.schedule = {name, name == ScheduleName::zb_v || name == ScheduleName::interleaved ? 2 : 1, d.schedule.split,
                    ""};
    });
  list.push_back([](Deck& d) {
    if (d.schedule.name == ScheduleName::interleaved) d.schedule.virtual_stages *= 2;
  });
  list.push_back([](Deck& d) {
    if (d.model.experts > 0)
      d.model.dispatch =
          d.model.dispatch == DispatchMethod::all_to_all ? DispatchMethod::all_gather : DispatchMethod::all_to_all;
  });
  return list;
}

}  // namespace

Outcome outcome_of(const Machine& machine, const RunSetup& setup, const std::vector<const MeasuredTasks*>& measured) {
  return {setup.deck, predict(machine, setup, measured), memory_of(machine, setup),
          usable_memory(machine, setup.mesh.world())};
}
Outcome outcome_of(const Machine& machine, const Deck& deck) {
  return outcome_of(machine, on_devices(make_setup(deck), machine.capability));
}

bool may_fit(const Machine& machine, const RunSetup& setup) {
  const int last = setup.mesh.pp - 1;
  return planned_memory(setup, RunKind::training, 0).total() <= usable_memory(machine, setup.mesh.world()) &&
         (last == 0 ||
          planned_memory(setup, RunKind::training, last).total() <= usable_memory(machine, setup.mesh.world()));
}

std::string layout_difference(const Deck& from, const Deck& to) {
  std::string text;
  for (const Key& key : all_keys()) {
    const bool layout = key.section == "mesh" || key.section == "schedule" || key.section == "train" ||
                        key.qualified() == "model.dispatch";
    if (!layout || value_text(key, from) == value_text(key, to)) continue;
    text += (text.empty() ? "" : " ") + key.qualified() + "=" + value_text(key, to);
  }
  return text;
}

std::vector<Neighbour> neighbours_of(const Deck& deck, int ranks) {
  std::vector<Neighbour> list;
  for (const Change& change : changes()) {
    Deck other = deck;
    change(other);
    try {
      check_deck(other, ranks);
    } catch (const BadInput&) {
      continue;
    }
    const std::string difference = layout_difference(deck, other);
    const bool known =
        std::any_of(list.begin(), list.end(), [&](const Neighbour& n) { return n.change == difference; });
    if (!difference.empty() && !known) list.push_back({difference, std::move(other)});
  }
  return list;
}

}  // namespace forge
