#include "predict/search_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "config/head_ranks.hpp"
#include "config/schedule_name.hpp"
#include "core/to_size.hpp"
#include "fp8/codes.hpp"
#include "layout/expert_nodes.hpp"
#include "layout/layer_kinds.hpp"
#include "layout/shard_nodes.hpp"
#include "model/update_rule.hpp"
#include "nn/units.plan.hpp"
#include "predict/outcome.hpp"

namespace forge {

Bounds::Bounds(const Machine& machine, const Deck& deck, int ranks)
    : machine_(machine), deck_(deck), spec_(resolve_model(deck.model)), ranks_(ranks) {
  const Precision p = precision_of(deck);
  state_bytes_ = size_of(p.storage);
  for (const StateBuffer& buffer : optimizer_state(deck.optimizer, p.accumulate))
    if (buffer.is_of_elements() && (buffer.of == KeptOf::all || buffer.of == KeptOf::whole_matrices))
      state_bytes_ += size_of(buffer.type);
  std::vector<Unit> units = parameter_units(spec_);
  freeze(deck.train.frozen, units);
  for (const Unit& unit : units) {
    if (unit.frozen) continue;
    double elements = 0;
    for (const Parameter& p : unit.parameters) elements += static_cast<double>(p.elements());
    const bool table = unit.kind == UnitKind::token_table || unit.kind == UnitKind::output;
    if (table) continue;
    const bool experts = is_of_experts(unit.kind);
    (experts ? size_.experts : size_.dense) += elements;
    double& largest = experts ? size_.layer_experts : size_.block;
    largest = std::max(largest, elements);
  }
}

std::vector<Candidate> Bounds::on_mesh(std::size_t index, const MeshDeck& mesh) {
  MeshShape shape = resolve_mesh(mesh, ranks_);
  // By the nodes of an ep group that rows reach in two hops, and of two-level sums.
  std::map<std::pair<int, int>, Places> places_of_nodes;
  const auto pp = static_cast<double>(mesh.pp), most = static_cast<double>(usable_memory(machine_, ranks_));
  Deck deck = deck_;
  deck.mesh = mesh;
  std::vector<Candidate> list;
  for (const Choice& choice : choices_of(deck_, mesh)) {
    set_choice(deck, deck_, choice);
    shape.cp_inner = static_cast<int>(head_ranks(deck));
    shape.ep_nodes = chosen_expert_nodes(deck, shape);
    set_shard_nodes(deck, shape);
    const auto [of_nodes, is_new] = places_of_nodes.try_emplace({shape.ep_nodes, shape.shard_nodes});
    Places& places = of_nodes->second;
    if (is_new) places = placements(shape, 0, {}, machine_.ranks_per_node);
    const LayersCost& cost = layers_of(deck, shape, places);
    const double microbatches = static_cast<double>(deck.train.global_batch_sequences) /
                                static_cast<double>(mesh.dp_replicate * mesh.dp_shard * choice.microbatch);
    const bool pairs = choice.overlap == Overlap::pairs;
    const double filled = pairs && choice.chunks == 1 ? 2 * pp : pp;
    const double bytes = least_bytes(deck, cost, std::min(microbatches, filled));
    const bool over = bytes > most;
    if (over && !nearly_fits(choice, deck_, mesh, bytes, most)) continue;
    const bool fills = choice.schedule == ScheduleName::zb_v || choice.schedule == ScheduleName::zero_bubble;
    const double idle = !fills ? 1 : pairs ? 0.7 : 0.4;  // of the bubble of 1F1B with as many chunks
    const double bubbles = (pp - 1) / pp / static_cast<double>(choice.chunks) * idle;
    const double bound = least_seconds(deck, cost, places, microbatches);
    const double experts = expert_traffic_seconds(deck, places, microbatches);
    Candidate c{index, choice, bound, std::max(bound, experts) + bubbles * cost.taken.seconds, bytes, 0, over};
    if (choice.recompute == most_below_full(deck.model)) {
      deck.train.recompute = Recompute::full;
      const LayersCost& whole = layers_of(deck, shape, places);
      const double least = least_bytes(deck, whole, std::min(microbatches, filled));
      if (least > most) continue;
      c.again = least_seconds(deck, whole, places, microbatches) - bound;
      const double part = over ? (bytes - most) / (bytes - least) : 0;
      c.likely += part * (c.again + bubbles * (whole.taken.seconds - cost.taken.seconds));
    }
    list.push_back(c);
  }
  return list;
}

const Bounds::LayersCost& Bounds::layers_of(const Deck& deck, const MeshShape& mesh, const Places& places) {
  const bool codes = deck.train.fp8_gather;
  Key key{{mesh.tp, mesh.cp, mesh.cp_inner, static_cast<int>(deck.mesh.cp_method), mesh.ep, mesh.etp,
           deck.train.microbatch_sequences},
          deck.train.recompute.parts,
          deck.model.dispatch,
          {codes && mesh.dense_shards() > 1, codes && mesh.expert_shards() > 1},
          {}};
  constexpr Group groups[] = {Group::tp, Group::cp, Group::pp, Group::ep, Group::etp, Group::cp_inner};
  for (std::size_t g = 0; g < std::size(groups); ++g) {
    const Placement& place = places[to_size(groups[g])];
    std::get<4>(key)[g] = {place.ranks, place.nodes, place.near, place.groups};
  }
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
  }
  LayersCost cost = compute(deck, mesh, places);
  const std::lock_guard lock(mutex_);
  return known_.emplace(key, std::move(cost)).first->second;
}

Bounds::LayersCost Bounds::compute(const Deck& deck, const MeshShape& mesh, const Places& places) const {
  BufferContext c = buffer_context(deck, local_spec(spec_, mesh.tp, mesh.etp));
  c.ep_nodes = chosen_expert_nodes(deck, mesh);
  resolve_coded(c.rounding, deck, mesh);
  if (deck.model.experts > 0) c.expert_load = machine_.imbalance;
  c.cutlass = takes_cutlass_on(machine_, deck, c.kernels.grouped);
  c.rounding.codes = multiplies_codes(deck, machine_.capability);
  const LayerCosts costs{machine_, c, attention_kernel(machine_, deck, c), places};
  LayersCost cost;
  const bool freezes = !deck.train.frozen.empty() || deck.model.adapter.on();
  std::map<std::tuple<bool, bool, std::int64_t, bool>, LayersCost> known;  // layers are of few kinds
  const auto taken = [&](const StageLayer& layer) {
    Taken sum;
    sum.add(costs.of({&layer, Pass::forward}));
    if (freezes) return sum;  // some layers may have no backward
    if (c.tp > 1)
      sum.add(costs.of({&layer, Pass::backward}));  // less than where B and W are apart
    else
      for (const Pass pass : {Pass::backward_input, Pass::backward_weight}) sum.add(costs.of({&layer, pass}));
    if (c.recompute != Recompute::none && recomputes(layer)) sum.add(costs.of({&layer, Pass::backward_input, true}));
    return sum;
  };
  for (std::int64_t l = 0; l < spec_.L(); ++l) {
    auto [kind, is_new] =
        known.try_emplace({spec_.is_moe(l), spec_.linear(l), spec_.window(l), c.rounding.has_block(l)});
    if (is_new) {
      const StageLayer layer{LayerKind::block, l};
      kind->second.taken = taken(layer);
      kind->second.saved =
          static_cast<double>(bytes_in(LayerMemory::saved, c, {.first_layer = static_cast<int>(l) - 1}, layer));
    }
    cost.taken.add(kind->second.taken.seconds, kind->second.taken.links);
    cost.taken.exchanged += kind->second.taken.exchanged;
    cost.saved += kind->second.saved;
  }
  StageLayer head{LayerKind::head};
  head.frozen = freezes;
  cost.taken.add(costs.of({&head, Pass::forward}));
  return cost;
}

// The mean stage's: what it computes and waits for in its layers, what its parameters or its gradients take, were
// each of their calls one for the whole stage, or what all of them take of a link.
double Bounds::least_seconds(const Deck& deck, const LayersCost& cost, const Places& places,
                             double microbatches) const {
  const MeshDeck& m = deck.mesh;
  const Precision p = precision_of(deck);
  const auto zero = deck.train.zero_stage;
  const double shards = static_cast<double>(m.dp_shard * m.cp), tp = static_cast<double>(m.tp);
  const double elements = size_.dense / static_cast<double>(m.pp) / tp;
  const auto time = [&](Group group, Collective collective, double count, DType type) {
    return collective_time(machine_, {group, collective, static_cast<std::int64_t>(count), type},
                           places[to_size(group)]);
  };
  const bool again = zero == 3 && deck.train.gather != GatherPolicy::step;
  // A pass of a chunk finds two units at most where the one before has left them.
  const double kept = again ? 2 * static_cast<double>(deck.schedule.virtual_stages) * size_.block / tp : 0;
  const DType gathered = deck.train.fp8_gather ? DType::u8 : p.compute;
  Taken parameters, gradients;
  if (zero > 0 && elements > kept)
    parameters.add(time(Group::parameter_shards, Collective::all_gather, (elements - kept) / shards, gathered),
                   again ? 2 * microbatches : 1);
  const double sums = zero >= 2 ? microbatches : 1;
  if (zero == 0) gradients.add(time(Group::gradients, Collective::all_reduce, elements, p.accumulate), sums);
  if (zero > 0) add_shard_sums(gradients, places, false, elements, p, sums);
  const double layers = microbatches / static_cast<double>(m.pp);
  const double in_layers = deck.train.overlap == Overlap::pairs
                               ? std::max(cost.taken.seconds - cost.taken.exchanged, cost.taken.exchanged)
                               : cost.taken.seconds;
  double least = std::max({layers * in_layers, parameters.seconds, gradients.seconds});
  for (std::size_t l = 0; l < parameters.links.size(); ++l)
    least = std::max(least, layers * cost.taken.links[l] + parameters.links[l] + gradients.links[l]);
  return least;
}

// Sums of so many gradients over the shards, in one level or two.
void Bounds::add_shard_sums(Taken& taken, const Places& places, bool experts, double elements, const Precision& p,
                            double times) const {
  const auto add = [&](Group group, Collective collective, DType type) {
    const Placement& place = places[to_size(group)];
    if (place.ranks < 2) return;
    const auto count = static_cast<std::int64_t>(elements / static_cast<double>(place.ranks));
    taken.add(collective_time(machine_, {group, collective, count, type}, place), times);
  };
  const Group of_node = experts ? Group::expert_gradient_node : Group::gradient_node;
  add(experts ? Group::expert_gradient_shards : Group::gradient_shards, Collective::reduce_scatter, p.accumulate);
  add(of_node, Collective::reduce_scatter, p.accumulate);
  elements /= std::max(1, places[to_size(of_node)].ranks);  // that a rank of the node has then
  add(experts ? Group::expert_gradient_rail : Group::gradient_rail, Collective::all_to_all, p.compute);
}

// What the mean stage's experts take in gathers and sums, were each of their calls one for the whole stage.
double Bounds::expert_traffic_seconds(const Deck& deck, const Places& places, double microbatches) const {
  const MeshDeck& m = deck.mesh;
  const Precision p = precision_of(deck);
  const auto zero = deck.train.zero_stage;
  const auto of_experts = static_cast<double>(m.ep * m.etp);
  const double shards = std::floor(static_cast<double>(m.dp_shard * m.cp * m.tp) / of_experts);
  if (size_.experts == 0 || zero == 0 || shards < 2) return 0;
  const bool again = zero == 3 && deck.train.gather != GatherPolicy::step;
  const auto count = static_cast<std::int64_t>(size_.experts / static_cast<double>(m.pp) / of_experts / shards);
  const auto time = [&](Group group, Collective collective, DType type) {
    return collective_time(machine_, {group, collective, count, type}, places[to_size(group)]);
  };
  Taken taken;
  taken.add(time(Group::expert_parameter_shards, Collective::all_gather, deck.train.fp8_gather ? DType::u8 : p.compute),
            again ? 2 * microbatches : 1);
  add_shard_sums(taken, places, true, static_cast<double>(count) * shards, p, zero >= 2 ? microbatches : 1);
  return std::max(taken.seconds, *std::max_element(taken.links.begin(), taken.links.end()));
}

// What the first stage can't do without: its part of the parameters' state, what `in_flight` microbatches save, and the
// places in which units take turns, up to two of each kind: gathered weights, and a microbatch's gradients.
double Bounds::least_bytes(const Deck& deck, const LayersCost& cost, double in_flight) const {
  const MeshDeck& m = deck.mesh;
  const Precision p = precision_of(deck);
  const auto bytes = [](DType type) { return static_cast<double>(size_of(type)); };
  const auto state = static_cast<double>(state_bytes_);
  const double whole = p.has_compute_copy() ? bytes(p.compute) : 0;
  const double gradient = bytes(deck.optimizer.gradients == StateType::bf16 ? p.compute : p.accumulate);
  const auto zero = deck.train.zero_stage;
  const auto of = [&](double elements, double shards) {
    return elements *
           (state / (zero >= 1 ? shards : 1) + gradient / (zero >= 2 ? shards : 1) + whole / (zero >= 3 ? shards : 1));
  };
  const auto pp = static_cast<double>(m.pp), tp = static_cast<double>(m.tp), ep = static_cast<double>(m.ep);
  const auto shards = static_cast<double>(m.dp_shard * m.cp), etp = static_cast<double>(m.etp);
  const double expert_shards = std::max(1.0, shards * tp / (ep * etp));
  const bool adds_in_buffers = zero >= 2 || deck.optimizer.gradients == StateType::bf16;
  const double weights = zero == 3 && deck.train.gather != GatherPolicy::step ? bytes(p.compute) : 0;
  const double turns = std::min(2.0, std::floor(static_cast<double>(spec_.L()) / pp));  // units of a stage, up to 2
  const auto places = [&](double elements, double shares) {
    return turns * elements * ((shares >= 2 ? weights : 0) + (adds_in_buffers ? bytes(p.accumulate) : 0));
  };
  return 0.95 * (of(size_.dense / pp / tp, shards) + of(size_.experts / pp / ep / etp, expert_shards) +
                 places(size_.block / tp, shards) + places(size_.layer_experts / ep / etp, expert_shards) +
                 cost.saved / pp * in_flight);
}

}  // namespace forge
