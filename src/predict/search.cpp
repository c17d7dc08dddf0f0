#include "predict/search.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "config/schedule_name.hpp"
#include "core/error.hpp"
#include "core/in_parallel.hpp"
#include "core/to_size.hpp"
#include "fp8/codes.hpp"
#include "layout/layer_kinds.hpp"
#include "nn/units.plan.hpp"
#include "predict/search_space.hpp"
#include "predict/step_cost.hpp"
#include "schedule/check_deck.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/lower.hpp"

namespace forge {

namespace {

// A layout of the space with its bounds.
struct Candidate {
  std::size_t mesh;
  Choice choice;
  double seconds;  // the bound of its step
  double likely;   // with bubble: the order of simulation
};

// What a microbatch costs in the layers of the whole model, on one rank of a mesh.
struct ModelCost {
  double seconds = 0;                           // all passes of all layers and of the head
  double saved = 0;                             // bytes that all layers keep
  std::array<Placement, group_count> places{};  // of the mesh
};

// Elements of the model's parameters.
struct ModelSize {
  double dense = 0, experts = 0;  // tables, which only some stages have, are left out
};

class Bounds {
 public:
  Bounds(const Machine& machine, const Deck& deck, int ranks)
      : machine_(machine), deck_(deck), spec_(resolve_model(deck.model)), ranks_(ranks) {
    for (const Unit& unit : parameter_units(spec_)) {
      double elements = 0;
      for (const Parameter& p : unit.parameters) elements += static_cast<double>(p.elements());
      const bool table = unit.kind == UnitKind::token_table || unit.kind == UnitKind::output;
      if (!table) (unit.kind == UnitKind::experts ? size_.experts : size_.dense) += elements;
    }
  }

  // None where it can't fit.
  std::optional<Candidate> candidate(std::size_t index, const MeshDeck& mesh, const Choice& choice) {
    const Deck deck = with_choice(deck_, mesh, choice);
    const ModelCost& cost = cost_of(deck);
    const auto pp = static_cast<double>(mesh.pp);
    const double microbatches = static_cast<double>(deck.train.global_batch_sequences) /
                                static_cast<double>(mesh.dp_replicate * mesh.dp_shard * choice.microbatch);
    if (least_bytes(deck, cost, std::min(microbatches, pp)) > most_bytes()) return {};
    const double bound = std::max(microbatches * cost.seconds / pp, stream_seconds(deck, cost, microbatches));
    const bool fills = choice.schedule == ScheduleName::zb_v || choice.schedule == ScheduleName::zero_bubble;
    const double bubble = (pp - 1) * cost.seconds / pp / static_cast<double>(choice.chunks) * (fills ? 0.4 : 1);
    return Candidate{index, choice, bound, bound + bubble};
  }

 private:
  double most_bytes() const { return static_cast<double>(usable_memory(machine_, ranks_)); }

  const ModelCost& cost_of(const Deck& deck) {
    const MeshDeck& m = deck.mesh;
    const CostKey key{{m.pp, m.dp_replicate, m.dp_shard, m.cp, m.tp, m.ep, m.etp, deck.train.microbatch_sequences},
                      deck.train.recompute,
                      deck.model.dispatch,
                      deck.train.fp8_gather};
    const auto found = costs_.find(key);
    return found != costs_.end() ? found->second : costs_.emplace(key, compute(deck)).first->second;
  }

  ModelCost compute(const Deck& deck) const {
    const MeshShape mesh = resolve_mesh(deck.mesh, ranks_);
    BufferContext c = buffer_context(deck, local_spec(spec_, mesh.tp, mesh.etp));
    resolve_coded(c.rounding, deck, mesh);
    if (deck.model.experts > 0) c.expert_load = machine_.imbalance;
    c.cutlass = takes_cutlass_on(machine_, deck, c.kernels.grouped);
    c.rounding.codes = multiplies_codes(deck, machine_.capability);
    const auto places = placements(mesh, 0, {}, machine_.ranks_per_node);
    const LayerCosts costs{machine_, c, attention_kernel(machine_, deck, c), places};
    ModelCost cost{0, 0, places};
    std::map<std::tuple<bool, std::int64_t, bool>, ModelCost> known;  // layers are of few kinds
    const auto seconds = [&](const StageLayer& layer) {
      double sum = 0;
      for (const Pass pass : {Pass::forward, Pass::backward_input, Pass::backward_weight})
        sum += costs.of({&layer, pass}).total();
      if (c.recompute != Recompute::none && recomputes(layer))
        sum += costs.of({&layer, Pass::backward_input, true}).total();
      return sum;
    };
    for (std::int64_t l = 0; l < spec_.L(); ++l) {
      auto [kind, is_new] = known.try_emplace({spec_.is_moe(l), spec_.window(l), c.rounding.has_block(l)});
      if (is_new) {
        const StageLayer layer{LayerKind::block, l};
        kind->second.seconds = seconds(layer);
        kind->second.saved =
            static_cast<double>(bytes_in(LayerMemory::saved, c, {.first_layer = static_cast<int>(l) - 1}, layer));
      }
      cost.seconds += kind->second.seconds;
      cost.saved += kind->second.saved;
    }
    const StageLayer head{LayerKind::head};
    cost.seconds += costs.of({&head, Pass::forward}).total();
    return cost;
  }

  // What the streams of parameters and of gradients take at least, were each of their calls one for the whole stage.
  double stream_seconds(const Deck& deck, const ModelCost& cost, double microbatches) const {
    const MeshDeck& m = deck.mesh;
    const Precision p = precision_of(deck);
    const auto zero = deck.train.zero_stage;
    const auto shards = static_cast<double>(m.dp_shard * m.cp);
    const double elements = size_.dense / static_cast<double>(m.pp * m.tp);
    const auto seconds = [&](Group group, Collective collective, double count, DType type) {
      return collective_seconds(machine_, {group, collective, static_cast<std::int64_t>(count), type},
                                cost.places[to_size(group)]);
    };
    const DType gathered = deck.train.fp8_gather ? DType::u8 : p.compute;
    const double gather = seconds(Group::parameter_shards, Collective::all_gather, elements / shards, gathered);
    const double reduce =
        zero >= 1 ? seconds(Group::gradient_shards, Collective::reduce_scatter, elements / shards, p.accumulate)
                  : seconds(Group::gradients, Collective::all_reduce, elements, p.accumulate);
    const double gathers = zero == 0 ? 0 : zero < 3 || deck.train.gather == GatherPolicy::step ? 1 : 2 * microbatches;
    return std::max(gathers * gather, (zero >= 2 ? microbatches : 1) * reduce);
  }

  // What the first stage can't do without: its part of the parameters' state, and what `in_flight` microbatches save.
  double least_bytes(const Deck& deck, const ModelCost& cost, double in_flight) const {
    const MeshDeck& m = deck.mesh;
    const Precision p = precision_of(deck);
    const auto bytes = [](DType type) { return static_cast<double>(size_of(type)); };
    double state = bytes(p.storage);
    for (const StateBuffer& buffer : optimizer_state(deck.optimizer, p.accumulate))
      if (buffer.is_of_elements() && (buffer.of == KeptOf::all || buffer.of == KeptOf::whole_matrices))
        state += bytes(buffer.type);
    const double whole = p.has_compute_copy() ? bytes(p.compute) : 0;
    const double gradient = bytes(deck.optimizer.gradients == StateType::bf16 ? p.compute : p.accumulate);
    const auto zero = deck.train.zero_stage;
    const auto of = [&](double elements, double shards) {
      return elements * (state / (zero >= 1 ? shards : 1) + gradient / (zero >= 2 ? shards : 1) +
                         whole / (zero >= 3 ? shards : 1));
    };
    const auto pp = static_cast<double>(m.pp), tp = static_cast<double>(m.tp), ep = static_cast<double>(m.ep);
    const auto shards = static_cast<double>(m.dp_shard * m.cp), etp = static_cast<double>(m.etp);
    const double expert_shards = std::max(1.0, shards * tp / (ep * etp));
    return 0.95 * (of(size_.dense / pp / tp, shards) + of(size_.experts / pp / ep / etp, expert_shards) +
                   cost.saved / pp * in_flight);
  }

  const Machine& machine_;
  const Deck& deck_;
  ModelSpec spec_;
  int ranks_;
  ModelSize size_;
  // By mesh and microbatch: where the groups lie depends on every axis; codes that are gathered are rounded once.
  using CostKey = std::tuple<std::array<std::int64_t, 8>, Recompute, DispatchMethod, bool>;
  std::map<CostKey, ModelCost> costs_;
};

// Lowered schedules, each made once.
class Schedules {
 public:
  Schedule of(const Deck& deck) {
    const int pp = static_cast<int>(deck.mesh.pp), microbatches = static_cast<int>(microbatches_of(deck));
    const auto key = std::tuple(deck.schedule.name, deck.schedule.virtual_stages, pp, microbatches);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = known_.find(key); found != known_.end()) return found->second;
    }
    Schedule made = lower(schedule_of(deck, pp, microbatches));
    const std::lock_guard lock(mutex_);
    return known_.emplace(key, std::move(made)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<ScheduleName, std::int64_t, int, int>, Schedule> known_;
};

// Which choices are known to have no room: on one mesh with one schedule and dispatch, memory falls with the ZeRO stage
// and with what is recomputed, and grows with the microbatch.
class Rooms {
 public:
  bool is_full(const Candidate& c) {
    const std::lock_guard lock(mutex_);
    const auto& list = full_[key_of(c)];
    return std::any_of(list.begin(), list.end(), [&](const Choice& full) {
      return c.choice.microbatch >= full.microbatch && c.choice.zero_stage <= full.zero_stage &&
             c.choice.recompute <= full.recompute;
    });
  }
  void set_full(const Candidate& c) {
    const std::lock_guard lock(mutex_);
    full_[key_of(c)].push_back(c.choice);
  }
  std::optional<bool> least(const Candidate& c) {
    const std::lock_guard lock(mutex_);
    const auto found = least_.find(key_of(c));
    return found == least_.end() ? std::nullopt : std::optional(found->second);
  }
  void set_least(const Candidate& c, bool room) {
    const std::lock_guard lock(mutex_);
    least_[key_of(c)] = room;
  }

 private:
  using Key = std::tuple<std::size_t, ScheduleName, std::int64_t, DispatchMethod>;
  static Key key_of(const Candidate& c) { return {c.mesh, c.choice.schedule, c.choice.chunks, c.choice.dispatch}; }
  std::mutex mutex_;
  std::map<Key, std::vector<Choice>> full_;
  std::map<Key, bool> least_;
};

class Search {
 public:
  Search(const Machine& machine, const Deck& deck, const SearchOptions& options)
      : machine_(machine),
        deck_(deck),
        options_(options),
        meshes_(meshes_of(deck, options.ranks, machine.ranks_per_node)) {}

  SearchResult run() {
    list_candidates();
    const auto start = std::chrono::steady_clock::now();
    const auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    std::size_t next = 0;
    constexpr std::size_t together = 8;
    for (; next < candidates_.size() && spent() < options_.seconds; next += together) {
      std::vector<Evaluation> found(std::min(together, candidates_.size() - next));
      in_parallel(found.size(), [&](std::size_t i) { found[i] = evaluate(candidates_[next + i]); });
      for (Evaluation& evaluation : found) take(std::move(evaluation));
    }
    for (; next < candidates_.size(); ++next) ++(candidates_[next].seconds > worst() ? result_.bounded : result_.left);
    return std::move(result_);
  }

 private:
  void list_candidates() {
    Bounds bounds(machine_, deck_, options_.ranks);
    for (std::size_t m = 0; m < meshes_.size(); ++m)
      for (const Choice& choice : choices_of(deck_, meshes_[m])) {
        ++result_.layouts;
        if (const auto c = bounds.candidate(m, meshes_[m], choice))
          candidates_.push_back(*c);
        else
          ++result_.without_room;
      }
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.likely < b.likely; });
  }

  // Seconds of the last that is kept.
  double worst() const {
    return static_cast<int>(result_.best.size()) < options_.best ? INFINITY : result_.best.back().time.seconds;
  }

  // What became of a candidate.
  struct Evaluation {
    std::int64_t SearchResult::*count = nullptr;
    std::optional<Outcome> outcome;
  };
  Evaluation evaluate(const Candidate& candidate) {
    if (candidate.seconds > worst()) return {&SearchResult::bounded, {}};
    const MeshDeck& mesh = meshes_[candidate.mesh];
    const Choice& choice = candidate.choice;
    if (rooms_.is_full(candidate) || !has_room_at_least(candidate)) return {&SearchResult::without_room, {}};
    const Deck deck = with_choice(deck_, mesh, choice);
    const std::optional<RunSetup> few = setup_of(of_few_microbatches(deck));
    if (!few) return {&SearchResult::refused, {}};
    std::optional<Outcome> outcome;
    if (may_fit(machine_, *few)) {
      const std::optional<RunSetup> setup = setup_of(deck);
      if (!setup) return {&SearchResult::refused, {}};
      outcome = outcome_of(machine_, *setup);
    }
    if (outcome && outcome->fits()) return {&SearchResult::simulated, std::move(outcome)};
    rooms_.set_full(candidate);
    return {&SearchResult::without_room, {}};
  }

  // Needs no more memory than the deck, and mostly as much: what fills the pipeline twice.
  static Deck of_few_microbatches(Deck deck) {
    const std::int64_t unit = deck.mesh.dp_replicate * deck.mesh.dp_shard * deck.train.microbatch_sequences;
    deck.train.batch_ramp.clear();
    const std::int64_t most = 2 * deck.mesh.pp * deck.schedule.virtual_stages;
    if (deck.train.global_batch_sequences / unit > most && deck.mesh.pp > 1)
      deck.train.global_batch_sequences = unit * most;
    else if (deck.mesh.pp == 1)
      deck.train.global_batch_sequences = std::min(deck.train.global_batch_sequences, 2 * unit);
    return deck;
  }

  // None where the deck isn't legal.
  std::optional<RunSetup> setup_of(Deck deck) {
    try {
      check_deck(deck, options_.ranks);
    } catch (const BadInput&) {
      return {};
    }
    return on_devices(make_setup(deck, 0, schedules_.of(deck)), machine_.capability);
  }

  // Whether the choice that needs least has room on the mesh with the schedule.
  bool has_room_at_least(const Candidate& candidate) {
    const auto known = rooms_.least(candidate);
    if (known) return *known;
    Choice least = candidate.choice;
    least.microbatch = 1;
    least.recompute = Recompute::full;
    const MeshDeck& mesh = meshes_[candidate.mesh];
    least.zero_stage = mesh.dp_shard * mesh.cp > 1 ? 3 : 0;
    const std::optional<RunSetup> setup = setup_of(of_few_microbatches(with_choice(deck_, mesh, least)));
    const bool room = !setup || may_fit(machine_, *setup);  // where it isn't legal nothing is said
    rooms_.set_least(candidate, room);
    return room;
  }

  void take(Evaluation evaluation) {
    ++(result_.*evaluation.count);
    if (!evaluation.outcome) return;
    Outcome& outcome = *evaluation.outcome;
    outcome.time.spans.clear();
    outcome.time.tasks.clear();
    auto& best = result_.best;
    const auto place = std::upper_bound(best.begin(), best.end(), outcome, [](const Outcome& a, const Outcome& b) {
      return a.time.seconds < b.time.seconds;
    });
    best.insert(place, std::move(outcome));
    if (static_cast<int>(best.size()) > options_.best) best.pop_back();
  }

  const Machine& machine_;
  const Deck& deck_;
  SearchOptions options_;
  std::vector<MeshDeck> meshes_;
  std::vector<Candidate> candidates_;
  SearchResult result_;
  Schedules schedules_;
  Rooms rooms_;
};

}  // namespace

SearchResult search(const Machine& machine, const Deck& resolved, const SearchOptions& options) {
  return Search(machine, resolved, options).run();
}

}  // namespace forge
