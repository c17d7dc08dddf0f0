#include "predict/step_cost.hpp"

#include <algorithm>

#include "config/optimizer_table.hpp"
#include "core/to_size.hpp"
#include "fp8/codes.hpp"
#include "layout/unit_buffers.hpp"
#include "plan/task_segments.hpp"

namespace forge {

StepCost::StepCost(const Machine& machine, const RunSetup& setup)
    : machine_(machine), setup_(setup), busiest_(buffers_on(machine, setup)) {
  if (setup.deck.model.experts > 0) busiest_.expert_load = machine.imbalance;
  const MeshGroups groups = groups_of(setup);
  for (int p = 0; p < setup.mesh.pp; ++p)
    places_.push_back(worst_placements(setup.mesh, p, groups, machine.ranks_per_node));
}

TaskCost StepCost::operator()(const RankShare& share, const Task& task) {
  // Layers of a kind differ in their window and experts, and in whether their products are in FP8.
  int kind = -1, like = 0;
  bool experts = false;
  std::int64_t window = 0;
  if (task.layer >= 0) {
    const StageLayer& layer = share.layers[to_size(task.action.chunk)][to_size(task.layer)];
    kind = static_cast<int>(layer.kind);
    like = (layer.state > 0) + 2 * setup_.buffers.rounding.has_block(layer.number) + 4 * layer.frozen +
           8 * layer.second_frozen + 16 * (layer.number >= 0 && setup_.spec.linear(layer.number)) +
           32 * layer.recomputes_all;
    if (layer.number >= 0) {
      experts = setup_.spec.is_moe(layer.number);
      window = setup_.spec.window(layer.number);
    }
  }
  const bool transfers = task.op == TaskOp::transfer;
  const Key key{share.pp_rank,
                task.op,
                kind,
                transfers         ? static_cast<int>(task.action.op)
                : task.round >= 0 ? task.round
                                  : like,
                experts,
                window,
                transfers ? to_size(task.action.chunk) : task.unit,
                task.last};
  const auto found = known_.find(key);
  return found != known_.end() ? found->second : known_.emplace(key, cost_of(share, task)).first->second;
}

TaskCost StepCost::cost_of(const RankShare& share, const Task& task) const {
  const auto& places = places_[to_size(share.pp_rank)];
  TaskCost cost;
  if (const LayerPass pass = pass_of(task, share); pass.layer) {
    const double accumulated = machine_.program.accumulate_bytes;
    cost = LayerCosts{machine_, busiest_, attention_kernel(machine_, setup_.deck, busiest_), places, share.cp_rank}.of(
        pass);
    if (pass.layer->unit != no_unit && (pass.pass == Pass::backward_weight || pass.pass == Pass::backward) &&
        accumulated > 0)
      add_bytes(cost, CostPart::rows, accumulated * static_cast<double>(share.units[pass.layer->unit].elements));
    return cost;
  }
  if (task.unit == no_unit && (task.op == TaskOp::gather || task.op == TaskOp::reduce_gradients)) {
    add_at_once(cost, share, task.op);
    return cost;
  }
  add_gradients(cost, share, task);
  add_update(cost, share, task);
  Task sent = task;
  Way way = Way::both;
  // A receive takes as long as its send: of states that come in, or go out.
  if (task.op == TaskOp::transfer && is_post(task.action.op)) {
    way = is_send_post(task.action.op) ? Way::out : Way::in;
    if (way == Way::in)
      sent.action.op = is_forward_transfer(task.action.op) ? Op::post_send_backward : Op::post_send_forward;
  }
  add_sends(cost, machine_, sends_of(setup_.buffers, share, sent), places, way);
  return cost;
}

// Of the units that shards_at_once takes together. The sum is an all-reduce, whatever shards are; norm and clipping
// then go over the whole of it (4 and 8 bytes in fp32). The gathered parts are copied twice to where the parameters
// stand.
void StepCost::add_at_once(TaskCost& cost, const RankShare& share, TaskOp op) const {
  std::vector<Sent> calls;
  const auto add = [&](Sent call) {
    for (Sent& known : calls)
      if (known.group == call.group && known.collective == call.collective) {
        known.count += call.count;
        return;
      }
    calls.push_back(call);
  };
  double elements = 0, shards = 0;
  for (std::size_t u = 0; u < share.units.size(); ++u) {
    const LocalUnit& unit = share.units[u];
    if (!is_shared_at_once(unit)) continue;
    Task task{op, {}, -1, u};
    task.last = true;
    for (Sent& call : sends_of(setup_.buffers, share, task)) {
      if (call.collective == Collective::reduce_scatter) {
        call.collective = Collective::all_reduce;
        call.count = unit.elements;
      }
      add(call);
    }
    elements += static_cast<double>(unit.elements);
    shards += static_cast<double>(unit.state().size());
  }
  add_sends(cost, machine_, calls, places_[to_size(share.pp_rank)], Way::both);
  const auto size = [](DType type) { return static_cast<double>(size_of(type)); };
  const Precision& p = setup_.buffers.precision;
  if (op == TaskOp::gather)
    add_bytes(cost, CostPart::parameters, 4 * size(p.compute) * elements);
  else
    add_bytes(cost, CostPart::optimizer, 3 * size(p.accumulate) * (elements - shards));
}

// Elements of a unit's sums that are cleared: forge's products overwrite the others. Programs that add each
// microbatch's gradient to its sum clear all.
std::int64_t StepCost::cleared(const LocalUnit& unit) const {
  return unit.elements - (machine_.program.is_forge() ? fresh_elements(unit) : 0);
}

// The same of what is cleared once a step.
std::int64_t StepCost::cleared_in_step(const LocalUnit& unit) const {
  if (unit.zero.reduce_each) return unit.state().size();
  return unit.zero.rounds_gradients ? unit.elements : cleared(unit);
}

// Of tasks up to the clip coefficient, and of the host's.
void StepCost::add_gradients(TaskCost& cost, const RankShare& share, const Task& task) const {
  const Precision& p = setup_.buffers.precision;
  const auto sum = static_cast<double>(size_of(p.accumulate));
  switch (task.op) {
    case TaskOp::clear_sums:
      for (const LocalUnit& unit : share.units)
        if (!unit.frozen)
          add_bytes(cost, CostPart::optimizer, bytes_of_gradient() * static_cast<double>(cleared_in_step(unit)));
      break;
    case TaskOp::clear_gradients:
      return add_bytes(cost, CostPart::rows, sum * static_cast<double>(cleared(share.units[task.unit])));
    case TaskOp::reduce_gradients:  // adds the sum to the rank's part
      if (share.units[task.unit].zero.nodes > 1)
        add_bytes(cost, CostPart::gradients, bytes_of_levels(share.units[task.unit]));
      if (share.units[task.unit].zero.rounds_gradients)
        add_bytes(cost, CostPart::gradients, bytes_of_rounding(share.units[task.unit], task.last));
      else if (share.units[task.unit].zero.reduce_each)
        add_bytes(cost, CostPart::gradients, 3 * sum * static_cast<double>(share.units[task.unit].state().size()));
      break;
    case TaskOp::reduce_tied:  // from the sums to a place, and back
      if (share.units[task.unit].zero.rounds_gradients)
        add_bytes(cost, CostPart::gradients,
                  2 * (sum + bytes_of_gradient()) * static_cast<double>(share.units[task.unit].state().size()));
      break;
    case TaskOp::gather:  // codes of the rank's part, and what those of the unit stand for
      if (share.coded.has(task.unit))
        add_bytes(cost, CostPart::parameters,
                  (1 + static_cast<double>(size_of(p.compute))) *
                      static_cast<double>(share.units[task.unit].elements + share.units[task.unit].shard().size()));
      break;
    case TaskOp::norm:
      return add_bytes(cost, CostPart::optimizer, bytes_of_gradient() * elements_of_state(share));
    case TaskOp::local_copy:
      return add_bytes(cost, CostPart::rows,
                       2 * static_cast<double>(size_of(p.compute)) *
                           static_cast<double>(setup_.buffers.stream_rows() * setup_.spec.C()));
    case TaskOp::read:
      // Other programs wait for the update before they begin the next step.
      (machine_.program.is_forge() ? cost.host : cost.of(CostPart::scalars)) += machine_.step_seconds;
      cost.of(CostPart::scalars) += machine_.program.step;
      break;
    default:
      break;
  }
}

// Of the optimizer's tasks.
void StepCost::add_update(TaskCost& cost, const RankShare& share, const Task& task) const {
  const Precision& p = setup_.buffers.precision;
  const auto bytes_of_type = [](DType type) { return static_cast<double>(size_of(type)); };
  const double copy = p.has_compute_copy() ? bytes_of_type(p.compute) : 0;
  const auto held = [&] { return static_cast<double>(share.matrices.rounds[to_size(task.round)].held_elements()); };
  switch (task.op) {
    case TaskOp::update:
      return add_bytes(cost, CostPart::optimizer, bytes_of_update(share));
    case TaskOp::update_factored:  // gradient three times, weight twice, and its copy; moments are little
      return add_bytes(cost, CostPart::optimizer,
                       (3 * bytes_of_type(p.accumulate) + 3 * bytes_of_type(p.storage) + copy) *
                           static_cast<double>(share.units[task.unit].state().size()));
    case TaskOp::gather_matrices:  // gradient, momentum but where owners keep it, and what goes to the owner
      return add_bytes(
          cost, CostPart::optimizer,
          (bytes_of_gradient() + bytes_of_states({KeptOf::whole_matrices}) + bytes_of_type(p.compute)) * held());
    case TaskOp::weight_amaxes:
    case TaskOp::compute_matrices:
      return add_operations(cost, segments_of(setup_.buffers, share, task));
    case TaskOp::update_matrices:
      return add_bytes(cost, CostPart::optimizer,
                       (2 * bytes_of_type(p.storage) + bytes_of_type(p.compute) + copy) * held());
    default:
      break;
  }
}

// Of products and kernels: matrices have no collective among them.
void StepCost::add_operations(TaskCost& cost, const Segments& list) const {
  for (const Product& p : list.all<Product>()) cost.of(CostPart::products) += seconds_of(machine_, p);
  for (const RowKernel& r : list.all<RowKernel>()) cost.of(CostPart::rows) += seconds_of(machine_, r);
  cost.host += machine_.host_launch * static_cast<double>(list.launches());
  cost.flops = list.flops();
}

void StepCost::add_bytes(TaskCost& cost, CostPart part, double bytes) const {
  cost.of(part) += row_seconds(machine_, bytes);
  cost.host += machine_.host_launch;
}

// Gradient, weight, its copy and what the optimizer keeps, of the elements that are updated one by one.
double StepCost::bytes_of_update(const RankShare& share) const {
  const Precision& p = setup_.buffers.precision;
  if (machine_.program.optimizer_bytes > 0) return machine_.program.optimizer_bytes * elements_of_state(share);
  const bool whole = row_of(setup_.deck.optimizer.name).whole_matrices();
  double sum = 0;
  for (const LocalUnit& unit : share.units) {
    const double bytes = bytes_of_gradient() + bytes_of_states({KeptOf::all, KeptOf::others}) +
                         static_cast<double>(2 * size_of(p.storage) + (p.has_compute_copy() ? size_of(p.compute) : 0));
    sum += bytes * static_cast<double>(kept_elements(unit, whole ? KeptOf::others : KeptOf::all));
  }
  return sum;
}

// States of an element, read and written.
double StepCost::bytes_of_states(std::initializer_list<KeptOf> of) const {
  double bytes = 0;
  for (const StateBuffer& buffer : setup_.buffers.optimizer)
    if (buffer.is_of_elements() && std::find(of.begin(), of.end(), buffer.of) != of.end())
      bytes += 2 * static_cast<double>(size_of(buffer.type));
  return bytes;
}

// Of a number of the step's gradient.
double StepCost::bytes_of_gradient() const {
  const Precision& p = setup_.buffers.precision;
  return static_cast<double>(size_of(setup_.deck.optimizer.gradients == StateType::bf16 ? p.compute : p.accumulate));
}

// As GradientSync rounds: a microbatch's numbers are read, and sums read and written; where ranks sum the last one, the
// sums are read, and its numbers read and written, and then what the ranks have summed is rounded.
double StepCost::bytes_of_rounding(const LocalUnit& unit, bool last) const {
  const auto number = static_cast<double>(size_of(setup_.buffers.precision.accumulate));
  const auto state = static_cast<double>(unit.state().size());
  const double held = unit.zero.reduce_each ? state : static_cast<double>(unit.elements), kept = bytes_of_gradient();
  if (!last || setup_.mesh.world() == 1) return (number + 2 * kept) * held;
  return (2 * number + kept) * held + (number + kept) * state;
}

// As sum_in_levels rounds the nodes' parts, and adds them to the rank's own.
double StepCost::bytes_of_levels(const LocalUnit& unit) const {
  const Precision& p = setup_.buffers.precision;
  const auto sum = static_cast<double>(size_of(p.accumulate)), sent = static_cast<double>(size_of(p.compute));
  const auto nodes = static_cast<double>(unit.zero.nodes), part = static_cast<double>(unit.shard().size());
  return (nodes * (sum + sent) + (nodes - 1) * sent + 2 * sum) * part;
}

double StepCost::elements_of_state(const RankShare& share) const {
  double elements = 0;
  for (const LocalUnit& unit : share.units)
    if (!unit.frozen) elements += static_cast<double>(unit.state().size());
  return elements;
}

}  // namespace forge
