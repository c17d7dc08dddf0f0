#include "plan/traffic.hpp"

#include <map>
#include <tuple>
#include <utility>

#include "core/to_size.hpp"
#include "layout/layer_kinds.hpp"
#include "layout/reductions.hpp"
#include "nn/run.plan.hpp"
#include "plan/pass_memo.hpp"
#include "plan/placement.hpp"

namespace forge {

namespace {

Group matrices_group(bool experts) {
  return experts ? Group::expert_matrices : Group::matrices;
}

// What a rank sends of its units, by unit or round of matrices.
std::vector<Sent> gather_sends(const BufferContext& c, const RankShare& share, std::size_t u) {
  const LocalUnit& unit = share.units[u];
  const Group group = unit.is_experts() ? Group::expert_parameter_shards : Group::parameter_shards;
  const bool coded = share.coded.has(u);
  std::vector<Sent> list{{group, Collective::all_gather, unit.shard().size(), coded ? DType::u8 : c.precision.compute}};
  if (coded && share.coded.units[u].others_of_shard > 0)
    list.push_back({group, Collective::all_gather, share.coded.units[u].others_of_shard, c.precision.compute});
  return list;
}

// Largest magnitudes of weights.
std::vector<Sent> amax_sends(const CodedUnits& coded) {
  std::vector<Sent> list;
  if (coded.dense > 0) list.push_back({Group::matrices, Collective::all_reduce, coded.dense, DType::f32});
  if (coded.experts > 0) list.push_back({Group::expert_matrices, Collective::all_reduce, coded.experts, DType::f32});
  return list;
}

// Of a microbatch's gradients; `last`: and what is summed once a step.
std::vector<Sent> reduction_sends(const BufferContext& c, const LocalUnit& unit, bool last) {
  std::vector<Sent> list;
  const auto add = [&](const Reduction& r) {
    if (r.nodes == 1) return list.push_back({r.group, r.collective, r.part.size(), c.precision.accumulate});
    list.push_back({r.node(), r.collective, r.nodes * r.part.size(), c.precision.accumulate});
    list.push_back({r.rail(), Collective::all_to_all, r.part.size(), c.precision.compute});
  };
  if (unit.zero.reduce_each || last) add(reduction_over_shards(unit));
  if (last)
    for (const Reduction& r : step_reductions(unit)) add(r);
  return list;
}

// A round's parts on their way to the owners, and back.
std::vector<Sent> matrix_sends(const BufferContext& c, const MatrixRound& round, bool back) {
  std::int64_t count = 0;
  for (const HeldPart& part : round.held)
    if (!back && part.sends && part.owner != round.rank) count += part.elements.size();
  for (const MatrixStack& stack : round.stacks)
    for (const OwnedPart& part : stack.parts)
      if (back && part.holder != round.rank) count += part.count;
  return {{matrices_group(round.experts), Collective::send, count, c.precision.compute}};
}

std::vector<Sent> factored_sends(const RankShare& share, std::size_t u) {
  const FactoredUnit& unit = share.factored.units[u];
  const Group group = matrices_group(share.units[u].is_experts());
  return {{group, Collective::all_reduce, unit.moments + unit.tensor_count(), DType::f64},
          {group, Collective::all_reduce, unit.tensor_count(), DType::f64}};
}

}  // namespace

std::vector<Sent> sends_of(const BufferContext& c, const RankShare& share, const Task& task) {
  if (const LayerPass p = pass_of(task, share); p.layer)
    return segments_of(c, share.cp_rank, *p.layer, p.pass, p.recompute).all<Sent>();
  switch (task.op) {
    case TaskOp::gather:
      return gather_sends(c, share, task.unit);
    case TaskOp::weight_amaxes:
      return amax_sends(share.coded);
    case TaskOp::reduce_gradients:
      return reduction_sends(c, share.units[task.unit], task.last);
    case TaskOp::reduce_tied:
      return {{Group::gradient_tied, Collective::all_reduce, share.units[task.unit].state().size(),
               c.precision.accumulate}};
    case TaskOp::clip:
      return scalar_sums(c);
    case TaskOp::unit_norms:
      return norm_sums(c);
    case TaskOp::gather_matrices:
    case TaskOp::return_matrices:
      return matrix_sends(c, share.matrices.rounds[to_size(task.round)], task.op == TaskOp::return_matrices);
    case TaskOp::update_factored:
      return factored_sends(share, task.unit);
    case TaskOp::transfer: {
      if (!is_send_post(task.action.op)) return {};
      const int states = states_on(only_of(task.reads), share.chunks[to_size(task.action.chunk)]);
      return {{Group::pp, Collective::send, states * c.stream_rows() * c.spec.C(), c.precision.compute}};
    }
    default:
      return {};
  }
}

namespace {

using GroupTraffic = std::vector<std::pair<std::string, Traffic>>;

// Adds up what tasks of a rank send.
class TrafficOfTasks {
 public:
  TrafficOfTasks(const BufferContext& c, const RankShare& share, const GroupSizes& sizes)
      : c_(c), share_(share), sizes_(sizes), traffic_(group_count) {
    for (std::size_t g = 0; g < traffic_.size(); ++g) traffic_[g].first = name_of(static_cast<Group>(g));
  }
  TrafficOfTasks(const BufferContext& c, const RankShare& share, const GroupSizes& sizes, GroupTraffic before)
      : c_(c), share_(share), sizes_(sizes), traffic_(std::move(before)) {}

  void add(const Task& task) {
    const LayerPass p = pass_of(task, share_);
    add_all(p.layer ? known_.of(p, [&] { return calls_of(task); }) : calls_of(task));
  }
  const GroupTraffic& traffic() const { return traffic_; }

 private:
  struct Call {
    std::size_t group;
    Collective collective;
    std::int64_t bytes, times;
  };

  std::vector<Call> calls_of(const Task& task) const {
    std::vector<Call> calls;
    for (const Sent& s : sends_of(c_, share_, task))
      if (sizes_[to_size(s.group)] > 1)
        calls.push_back({to_size(s.group), s.collective, bytes_of(s, sizes_) / s.times, s.times});
    return calls;
  }
  void add_all(const std::vector<Call>& calls) {
    for (const Call& call : calls) traffic_[call.group].second.add(call.collective, call.bytes, call.times);
  }

  const BufferContext& c_;
  const RankShare& share_;
  const GroupSizes& sizes_;
  GroupTraffic traffic_;
  PassMemo<std::vector<Call>> known_;
};

// f(task) of a training step and its update.
template <class F>
void each_task(const BufferContext& c, const RankShare& share, const Schedule& schedule, const F& f) {
  for (const Task& task : step_tasks(share, schedule, c.recompute)) f(task);
  for (const Task& task : update_tasks(share, false)) f(task);
}

}  // namespace

std::vector<Sent> distinct_calls(const BufferContext& c, const RankShare& share, const Schedule& schedule) {
  std::map<std::tuple<Group, Collective, DType, std::int64_t>, Sent> calls;
  each_task(c, share, schedule, [&](const Task& task) {
    for (const Sent& s : sends_of(c, share, task))
      calls[{s.group, s.collective, s.type, s.count}] = {s.group, s.collective, s.count, s.type};
  });
  std::vector<Sent> list;
  for (const auto& [key, call] : calls) list.push_back(call);
  return list;
}

std::vector<std::pair<std::string, Traffic>> plan_traffic(const BufferContext& c, const ModelSpec& whole,
                                                          const MeshShape& mesh, const RankShare& share,
                                                          const Schedule& schedule) {
  const GroupSizes sizes = group_sizes(whole, mesh, share);
  TrafficOfTasks sum(c, share, sizes);
  each_task(c, share, schedule, [&](const Task& task) { sum.add(task); });
  return sum.traffic();
}

std::vector<std::vector<std::pair<std::string, Traffic>>> plan_traffic_of_shards(const BufferContext& c,
                                                                                 const ModelSpec& whole,
                                                                                 const MeshShape& mesh, RankShare share,
                                                                                 const Schedule& schedule,
                                                                                 const std::vector<int>& shards) {
  const GroupSizes sizes = group_sizes(whole, mesh, share);
  TrafficOfTasks alike(c, share, sizes);
  // Where shards differ: in what is summed once a step of a part of their own.
  const auto differs = [](const LocalUnit& unit) { return unit.kind != UnitKind::experts; };
  std::vector<Task> others;
  each_task(c, share, schedule, [&](const Task& task) {
    if (task.op == TaskOp::reduce_gradients && task.last && differs(share.units[task.unit]))
      others.push_back(task);
    else
      alike.add(task);
  });
  std::vector<GroupTraffic> list;
  for (const int shard : shards) {
    const int rank = share.pp_rank * (mesh.world() / mesh.pp) + shard * mesh.tp;
    const int edp = mesh.expert().coordinate(rank, static_cast<int>(ExpertAxis::edp));
    for (LocalUnit& unit : share.units)
      if (differs(unit)) unit.zero.shard = unit.is_experts() ? edp % mesh.expert_shards() : shard;
    TrafficOfTasks sum(c, share, sizes, alike.traffic());
    for (const Task& task : others) sum.add(task);
    list.push_back(sum.traffic());
  }
  return list;
}

}  // namespace forge
