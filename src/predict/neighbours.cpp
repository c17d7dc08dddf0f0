#include "predict/neighbours.hpp"

#include <algorithm>
#include <functional>

#include "config/head_ranks.hpp"
#include "config/keys.hpp"
#include "config/recompute.hpp"
#include "config/schedule_name.hpp"
#include "core/error.hpp"
#include "core/in_parallel.hpp"
#include "layout/expert_nodes.hpp"
#include "layout/shard_nodes.hpp"
#include "nn/units.plan.hpp"
#include "schedule/check_deck.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/repetition.hpp"

namespace forge {

namespace {

struct DeckChange {
  const char* kind;
  std::function<void(Deck&)> apply;
};
using MeshAxis = std::int64_t MeshDeck::*;

// Moves a factor of two from one axis to another, where the first has it. `follows`: etp that is as tp stays so.
std::function<void(Deck&)> factor_moved(MeshAxis from, MeshAxis to, bool follows) {
  return [=](Deck& d) {
    MeshDeck& m = d.mesh;
    if (m.*from % 2 != 0) return;
    const bool as_tp = follows && m.etp == m.tp;
    m.*from /= 2;
    m.*to *= 2;
    m.etp = as_tp ? m.tp : std::min(m.etp, m.tp);
  };
}

void add_moves(std::vector<DeckChange>& list) {
  struct Named {
    const char* kind;  // moves are named by the first of their two axes in this order
    MeshAxis axis;
  };
  constexpr Named axes[] = {{"tp", &MeshDeck::tp},
                            {"pp", &MeshDeck::pp},
                            {"cp", &MeshDeck::cp},
                            {"dp", &MeshDeck::dp_shard},
                            {"dp", &MeshDeck::dp_replicate}};
  for (const Named& a : axes)
    for (const Named& b : axes) {
      if (&a >= &b) continue;
      for (const bool follows : {true, false}) {
        list.push_back({a.kind, factor_moved(a.axis, b.axis, follows)});
        list.push_back({a.kind, factor_moved(b.axis, a.axis, follows)});
      }
    }
  list.push_back({"ep", [](Deck& d) { d.mesh.ep *= 2; }});
  list.push_back({"ep", [](Deck& d) { d.mesh.ep = std::max<std::int64_t>(1, d.mesh.ep / 2); }});
  list.push_back({"etp", [](Deck& d) { d.mesh.etp = d.mesh.etp == 1 ? d.mesh.tp : 1; }});
}

void set_zero_stage(Deck& d, std::int64_t stage, Accumulation accumulate) {
  d.train.zero_stage = stage;
  d.train.accumulate = accumulate;
  if (stage == 3) return;
  d.train.gather = GatherPolicy::microbatch;
  d.train.fp8_gather = false;
}

// automatic: where rows then go in two hops, one where they do now.
void set_dispatch(Deck& d, DispatchMethod method) {
  if (d.model.experts == 0) return;
  const auto nodes = [](const Deck& deck) {
    return chosen_expert_nodes(deck, resolve_mesh(deck.mesh, ranks_of(deck.mesh)));
  };
  Deck other = d;
  other.model.dispatch = method;
  const bool both_send_rows = method != DispatchMethod::all_gather && d.model.dispatch != DispatchMethod::all_gather;
  if (!both_send_rows || nodes(other) != nodes(d)) d = other;
}

void set_cp_method(Deck& d, CpMethod method) {
  if (d.mesh.cp == 1 || d.mesh.cp_method == method) return;
  d.mesh.cp_method = method;
  d.mesh.cp_inner = 0;
  if (method == CpMethod::two_level) d.mesh.cp_inner = head_ranks(d);  // 1 where there are no two levels
}

// So many quarters of a stage's blocks recompute all.
void recompute_quarters(Deck& d, int quarters) {
  const std::int64_t layers = layers_of_stage(d), blocks = (quarters * layers + 3) / 4;
  if (blocks == layers) return;
  if (d.train.recompute == Recompute::full) d.train.recompute = most_below_full(d.model);
  d.train.recompute_full_layers = blocks;
}

void add_training_changes(const ModelDeck& model, std::vector<DeckChange>& list) {
  list.push_back({"microbatch", [](Deck& d) { d.train.microbatch_sequences *= 2; }});
  list.push_back({"microbatch", [](Deck& d) {
                    d.train.microbatch_sequences = std::max<std::int64_t>(1, d.train.microbatch_sequences / 2);
                  }});
  for (const Recompute r : recompute_policies(model))
    list.push_back({"recompute", [r](Deck& d) { set_recompute(d.train, r); }});
  for (const int quarters : {0, 1, 2, 3})
    list.push_back({"recompute", [quarters](Deck& d) { recompute_quarters(d, quarters); }});
  for (const Overlap overlap : {Overlap::none, Overlap::pairs})
    list.push_back({"overlap", [overlap](Deck& d) { d.train.overlap = overlap; }});
  for (const Accumulation accumulate : {Accumulation::unsharded, Accumulation::sharded})
    list.push_back({"accumulate", [=](Deck& d) { d.train.accumulate = accumulate; }});
  for (const Accumulation accumulate : {Accumulation::automatic, Accumulation::sharded})
    for (const std::int64_t stage : {0, 1, 2, 3})
      list.push_back({"zero", [=](Deck& d) { set_zero_stage(d, stage, accumulate); }});
  list.push_back({"reduction", [](Deck& d) {
                    const bool one = d.train.reduction == ReductionLevels::one_level;
                    d.train.reduction = one ? ReductionLevels::two_level : ReductionLevels::one_level;
                  }});
  list.push_back({"gather", [](Deck& d) {
                    const bool step = d.train.gather == GatherPolicy::step;
                    d.train.gather = step ? GatherPolicy::microbatch : GatherPolicy::step;
                  }});
  for (const CpMethod method : {CpMethod::ring, CpMethod::all_gather, CpMethod::all_to_all, CpMethod::two_level})
    list.push_back({"cp_method", [method](Deck& d) { set_cp_method(d, method); }});
  for (const DispatchMethod method :
       {DispatchMethod::all_to_all, DispatchMethod::automatic, DispatchMethod::all_gather})
    list.push_back({"dispatch", [method](Deck& d) { set_dispatch(d, method); }});
}

void add_schedules(std::vector<DeckChange>& list) {
  for (const ScheduleName name :
       {ScheduleName::one_f_one_b, ScheduleName::zero_bubble, ScheduleName::zb_v, ScheduleName::interleaved})
    list.push_back({"schedule", [name](Deck& d) {
                      const int chunks = name == ScheduleName::interleaved ? 2 : chunks_of(name);
                      if (d.mesh.pp > 1) d.schedule = {name, chunks, d.schedule.split, ""};
                    }});
  list.push_back({"schedule", [](Deck& d) {
                    if (d.schedule.name == ScheduleName::interleaved) d.schedule.virtual_stages *= 2;
                  }});
}

// What no longer divides after a change takes the next value that does.
void adjust(Deck& d, const Deck& from, int ranks) {
  MeshDeck& m = d.mesh;
  const std::int64_t stage = ranks / m.pp, data = m.dp_replicate * m.dp_shard;
  while (m.ep % 2 == 0 && m.ep <= from.mesh.ep && stage % (m.ep * m.etp) != 0) m.ep /= 2;
  if (!head_ranks_problem(d).empty()) m.cp_inner = 0;
  if (!head_ranks_problem(d).empty()) m.cp_method = CpMethod::ring;
  Report refused;
  const auto mesh = resolve_mesh(m, ranks, refused);
  if (mesh && d.train.reduction == from.train.reduction) drop_illegal_levels(d, *mesh);
  std::int64_t& sequences = d.train.microbatch_sequences;
  while (sequences % 2 == 0 && sequences <= from.train.microbatch_sequences &&
         d.train.global_batch_sequences % (sequences * data) != 0)
    sequences /= 2;
  if (m.pp == 1 && from.mesh.pp > 1 && d.schedule.file.empty())
    d.schedule = {ScheduleName::one_f_one_b, 1, d.schedule.split, ""};
  d.train.recompute_full_layers = std::min(d.train.recompute_full_layers, layers_of_stage(d));
  const bool as_many = m.pp * d.schedule.virtual_stages == from.mesh.pp * from.schedule.virtual_stages;
  if (!as_many && d.schedule.split != "balanced") d.schedule.split = "even";
}

// The deck's file may leave etp and accumulate open: what isn't as they would then be is said.
bool says_etp(const Deck& from, const Deck& to, bool differs) {
  return to.model.experts > 0 && (differs || (to.mesh.tp != from.mesh.tp && to.mesh.etp != to.mesh.tp));
}
bool says_accumulate(const Deck& from, const Deck& to) {
  const bool sharded = to.train.zero_stage >= 2;
  return from.train.zero_stage != to.train.zero_stage &&
         to.train.accumulate != (sharded ? Accumulation::sharded : Accumulation::unsharded);
}

}  // namespace

std::string layout_difference(const Deck& from, const Deck& to) {
  std::string text;
  for (const Key& key : all_keys()) {
    const bool layout = key.section == "mesh" || key.section == "schedule" || key.section == "train" ||
                        key.qualified() == "model.dispatch";
    const std::string name = key.qualified();
    const bool differs = value_text(key, from) != value_text(key, to);
    if (layout && (name == "mesh.etp" ? says_etp(from, to, differs)
                                      : differs || (name == "train.accumulate" && says_accumulate(from, to))))
      text += (text.empty() ? "" : " ") + name + "=" + value_text(key, to);
  }
  return text;
}

std::vector<Neighbour> neighbours_of(const Deck& deck, int ranks) {
  std::vector<DeckChange> changes;
  add_moves(changes);
  add_training_changes(deck.model, changes);
  add_schedules(changes);
  std::vector<Neighbour> list;
  for (const DeckChange& change : changes) {
    Deck other = deck;
    change.apply(other);
    if (layout_difference(deck, other).empty()) continue;
    adjust(other, deck, ranks);
    try {
      check_deck(other, ranks);
    } catch (const BadInput&) {
      continue;
    }
    const std::string difference = layout_difference(deck, other);
    const bool known =
        std::any_of(list.begin(), list.end(), [&](const Neighbour& n) { return n.change == difference; });
    if (!difference.empty() && !known) list.push_back({change.kind, difference, std::move(other)});
  }
  return list;
}

std::vector<PredictedNeighbour> predicted_neighbours(const Machine& machine, const Outcome& outcome) {
  std::vector<PredictedNeighbour> list;
  for (Neighbour& n : neighbours_of(outcome.deck, static_cast<int>(ranks_of(outcome.deck.mesh))))
    list.push_back({std::move(n), 0, 0, false});
  const std::vector<Unit> units = parameter_units(resolve_model(outcome.deck.model));  // neighbours have the same
  in_parallel(list.size(), [&](std::size_t i) {
    const Deck& deck = list[i].of.deck;
    const RunSetup setup = make_setup(deck, 0, lowered_schedule(deck, microbatches_of(deck)), asked_kernels(), &units);
    const Outcome other = outcome_of(machine, on_devices(setup, machine.capability));
    list[i].seconds = other.time.seconds;
    list[i].bytes = other.memory.total();
    list[i].fits = other.fits();
  });
  std::stable_sort(list.begin(), list.end(), [](const PredictedNeighbour& a, const PredictedNeighbour& b) {
    return a.fits != b.fits ? a.fits : a.seconds < b.seconds;
  });
  return list;
}

}  // namespace forge
