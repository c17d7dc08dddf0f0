#include "predict/pass_cost.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>

#include "core/to_size.hpp"
#include "layout/layer_kinds.hpp"
#include "nn/dispatch.plan.hpp"
#include "plan/task_segments.hpp"

namespace forge {

namespace {

CostPart part_of(Group group) {
  switch (group) {
    case Group::scalars:
      return CostPart::scalars;
    case Group::tp:
    case Group::tp_behind:
      return CostPart::tp;
    case Group::cp:
    case Group::cp_inner:
    case Group::cp_outer:
      return CostPart::cp;
    case Group::pp:
      return CostPart::transfers;
    case Group::ep:
    case Group::etp:
    case Group::ep_rail:
    case Group::ep_node:
      return CostPart::ep;
    case Group::parameter_shards:
    case Group::expert_parameter_shards:
      return CostPart::parameters;
    default:
      return CostPart::gradients;
  }
}

// Score matrices of a program whose attention isn't fused go through memory; backward makes them again, and their
// gradients.
double score_seconds(const Machine& machine, const AttentionProduct& a) {
  const auto elements = static_cast<double>(a.sequences * a.heads * a.query_rows() * a.key_rows());
  return (a.backward ? 2 : 1) * machine.program.score_bytes * elements /
         (machine.memory_bandwidth * machine.compute_speed);
}

// Logits of a program whose loss isn't fused go through memory.
double logit_seconds(const Machine& machine, const Segments& list) {
  double logits = 0;
  for (const RowKernel& r : list.all<RowKernel>())
    if (r.name == "cross_entropy") logits += static_cast<double>(r.rows) * static_cast<double>(r.columns);
  return machine.program.logit_bytes * logits / (machine.memory_bandwidth * machine.compute_speed);
}

// Of an expert's rows, where the routers are balanced; one product an expert where no rates of one launch are known.
double expert_product_seconds(const Machine& machine, const ExpertProduct& p) {
  if (p.rows == 0) return 0;
  // Chunks of a recurrence, in a type whose rates nobody has measured: such small products are bound by memory.
  if (!machine.has_rates(p.operands)) {
    const std::int64_t numbers = p.rows * (p.n + p.k) + p.experts * p.n * p.k;
    return row_seconds(machine, static_cast<double>(numbers) * static_cast<double>(size_of(p.operands)));
  }
  const auto experts = static_cast<double>(p.experts), rows = static_cast<double>(p.rows) / experts;
  const auto n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  if (p.grouped)
    if (const auto seconds =
            expert_seconds(machine, p.operands, p.described ? "cutlass" : "tensor_cores", p.of, experts, rows, n, k))
      return *seconds;
  return p.sums ? product_seconds(machine, p.operands, p.of, n, k, rows, experts)
                : product_seconds(machine, p.operands, p.of, rows, n, k, experts);
}

Wire wire_of(const WireTime& time, Way way) {
  const double out = way != Way::in, in = way != Way::out;
  return {0, time.latency, time.seconds, {out * time.nvlink, in * time.nvlink, out * time.nic, in * time.nic}};
}

double host_seconds(const Machine& machine, const Sent& call) {
  return (machine.host_launch + machine.program.host_collective) * static_cast<double>(call.times);
}

// Exchanges end when the rank that gets most, or gives most back, has done so, in as many rounds as it takes.
Sent of_busiest(Sent call, double load, std::int64_t rounds) {
  const bool of_rows = call.collective == Collective::all_to_all || call.collective == Collective::send;
  if (!of_rows || (call.group != Group::ep && call.group != Group::etp && call.group != Group::ep_node)) return call;
  call.count = std::llround(load * static_cast<double>(call.count) / static_cast<double>(rounds));
  call.times *= rounds;
  return call;
}

}  // namespace

double seconds_of(const Machine& machine, const Product& p) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  return product_seconds(machine, p.operands, p.of, real(p.m), real(p.n), real(p.k), 1, p.codes);
}

double seconds_of(const Machine& machine, const RowKernel& r) {
  return row_seconds(machine, static_cast<double>(r.read_bytes + r.written_bytes), r.name);
}

void add_sends(TaskCost& cost, const Machine& machine, const std::vector<Sent>& calls,
               const std::array<Placement, group_count>& places, Way way) {
  Wires wires;
  for (const Sent& call : calls) {
    const WireTime time = collective_time(machine, call, places[to_size(call.group)]);
    if (time.total() <= 0) continue;
    cost.of(part_of(call.group)) += time.total();
    cost.host += host_seconds(machine, call);
    wires.push_back(wire_of(time, way));
  }
  if (!wires.empty()) cost.wires = std::make_shared<Wires>(std::move(wires));
}

double load_of_busiest(const BufferContext& busiest) {
  BufferContext mean = busiest;
  mean.expert_load = 1;
  const auto rows = [](const BufferContext& c) {
    return static_cast<double>(std::max<std::int64_t>(expected_expert_rows(c), 1));
  };
  return rows(busiest) / rows(mean);
}

namespace {

// What a layer's pass computes and sends, segment by segment.
class PassCost {
 public:
  explicit PassCost(const LayerCosts& costs) : costs_(costs), machine_(costs.machine) {
    const BufferContext& c = costs.context;
    key_ranks_ = c.microbatch.cp / c.cp_inner;
    key_group_ = c.cp_inner > 1 ? Group::cp_outer : Group::cp;
    if (c.expert_load <= 1) return;
    load_ = load_of_busiest(c);
    rounds_ = expected_rounds(c);
  }

  TaskCost of(const Segments& list) {
    auto awaited = list.awaited.begin();
    for (std::size_t i = 0; i < list.segments.size(); ++i) {
      if (awaited != list.awaited.end() && awaited->end == i) end_behind(), ++awaited;
      std::visit([&](const auto& one) { add(one); }, list.segments[i]);
    }
    if (awaited != list.awaited.end()) end_behind();
    compute(CostPart::rows, logit_seconds(machine_, list));
    if (place_) end_attention();
    if (!wires_.empty()) cost_.wires = std::make_shared<Wires>(std::move(wires_));
    cost_.host += machine_.host_launch * static_cast<double>(list.launches());
    cost_.flops = list.flops();
    if (costs_.places[to_size(Group::pp)].nodes > 1)
      cost_.host += machine_.program.host_pipeline * tp_calls_ * costs_.places[to_size(Group::tp)].ranks;
    return std::move(cost_);
  }

 private:
  void add(const Product& p) { compute(CostPart::products, seconds_of(machine_, p)); }
  void add(const ExpertProduct& p) { compute(CostPart::products, expert_product_seconds(machine_, p)); }
  void add(const RowKernel& r) { compute(CostPart::rows, machine_.program.row_traffic * seconds_of(machine_, r)); }
  void add(const AttentionProduct& a) {
    const AttentionWork work{a.flops(), static_cast<double>(a.key_rows()),
                             static_cast<double>(a.head_size + a.value_size) / 2, a.backward};
    const double seconds = attention_seconds(machine_, costs_.context.precision.compute, costs_.attention, work) +
                           score_seconds(machine_, a);
    if (key_ranks_ == 1) return compute(CostPart::attention, seconds);
    cost_.of(CostPart::attention) += seconds;
    attention();
  }
  void add(const Sent& sent) {
    const Sent call = of_busiest(sent, load_, rounds_);
    WireTime time = collective_time(machine_, call, costs_.places[to_size(call.group)]);
    if (time.total() <= 0) return;
    cost_.host += host_seconds(machine_, call);
    if (part_of(call.group) == CostPart::tp) {
      const auto calls = static_cast<double>(call.times);
      tp_calls_ += calls;
      for (double* part : {&time.latency, &time.seconds, &time.nvlink, &time.nic}) *part *= machine_.program.tp_traffic;
      time.latency += machine_.program.tp_wait * calls;
    }
    cost_.of(part_of(call.group)) += time.total();
    const Wire wire = wire_of(time, Way::both);
    if (call.group == Group::tp_behind && machine_.program.is_forge()) return begin_behind(wire);
    const bool of_keys = call.group == key_group_ && call.collective != Collective::all_to_all;
    if (!of_keys || key_ranks_ == 1) return send(wire);
    keys_ += time.total();
    Wire& all = attention();
    for (std::size_t l = 0; l < all.links.size(); ++l) all.links[l] += wire.links[l];
  }

  void compute(CostPart part, double seconds) {
    cost_.of(part) += seconds;
    (behind_ ? wires_[*behind_].computed : before_) += seconds;
  }
  void send(Wire wire) {
    wire.before = std::exchange(before_, 0);
    wires_.push_back(wire);
  }
  // Rows of tp ranks that travel behind what is computed up to the end; what is sent in between follows their wire.
  void begin_behind(const Wire& wire) {
    behind_ = wires_.size();
    send(wire);
  }
  void end_behind() {
    if (!behind_) return;
    Wire& wire = wires_[*std::exchange(behind_, std::nullopt)];
    const double sent = std::exchange(wire.latency, 0) + wire.seconds;
    wire.seconds = std::max(sent, wire.computed);
    cost_.of(CostPart::tp) -= std::min(sent, wire.computed);
  }
  // Keys and values go round behind attention: where the first of both begins.
  Wire& attention() {
    if (!place_) {
      place_ = wires_.size();
      send({});
    }
    return wires_[*place_];
  }
  // … but for those of one rank.
  void end_attention() {
    const double ranks = key_ranks_, attention = cost_.of(CostPart::attention);
    const double awaited = std::max(keys_ / ranks, keys_ - attention * (ranks - 1) / ranks);
    cost_.of(CostPart::cp) -= keys_ - awaited;
    wires_[*place_].seconds = attention + awaited;
    wires_[*place_].computed = attention;
  }

  const LayerCosts& costs_;
  const Machine& machine_;
  int key_ranks_ = 1;  // among which keys go round or are gathered, behind attention
  Group key_group_ = Group::cp;
  double load_ = 1;
  std::int64_t rounds_ = 1;
  TaskCost cost_;
  Wires wires_;
  double before_ = 0, tp_calls_ = 0, keys_ = 0;
  std::optional<std::size_t> place_, behind_;
};

}  // namespace

TaskCost LayerCosts::of(const LayerPass& pass) const {
  TaskCost cost = PassCost(*this).of(segments_of(context, cp_rank, *pass.layer, pass.pass, pass.recompute));
  if (context.expert_load > 1) {
    BufferContext mean = context;
    mean.expert_load = 1;
    cost.flops = segments_of(mean, cp_rank, *pass.layer, pass.pass, pass.recompute).flops();
  }
  if (pass.layer->kind == LayerKind::block)
    cost.host += pass.pass == Pass::forward           ? machine.program.host_forward
                 : pass.pass != Pass::backward_weight ? machine.program.host_backward
                                                      : 0;
  return cost;
}

}  // namespace forge
