#include "plan/traffic.hpp"

#include "core/to_size.hpp"
#include "layout/layer_kinds.hpp"
#include "nn/run.plan.hpp"
#include "plan/pass_memo.hpp"
#include "plan/placement.hpp"
#include "plan/unit_sends.hpp"

namespace forge {

std::vector<Sent> sends_of(const BufferContext& c, const RankShare& share, const Task& task) {
  if (const LayerPass p = pass_of(task, share); p.layer) return sends_of(c, *p.layer, p.pass, p.recompute);
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
    case TaskOp::check_overflow:
      return {{share.overflow_group, Collective::all_reduce, c.ep, DType::f32}};
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

std::vector<std::pair<std::string, Traffic>> plan_traffic(const BufferContext& c, const ModelSpec& whole,
                                                          const MeshShape& mesh, const RankShare& share,
                                                          const Schedule& schedule) {
  const GroupSizes sizes = group_sizes(whole, mesh, share);
  std::vector<std::pair<std::string, Traffic>> traffic(group_count);
  for (std::size_t g = 0; g < traffic.size(); ++g) traffic[g].first = name_of(static_cast<Group>(g));
  struct Call {
    std::size_t group;
    Collective collective;
    std::int64_t bytes, times;
  };
  const auto calls_of = [&](const Task& task) {
    std::vector<Call> calls;
    for (const Sent& s : sends_of(c, share, task))
      if (sizes[to_size(s.group)] > 1)
        calls.push_back({to_size(s.group), s.collective, bytes_of(s, sizes) / s.times, s.times});
    return calls;
  };
  PassMemo<std::vector<Call>> known;
  const auto add_all = [&](const std::vector<Call>& calls) {
    for (const Call& call : calls) traffic[call.group].second.add(call.collective, call.bytes, call.times);
  };
  const auto add = [&](const Task& task) {
    const LayerPass p = pass_of(task, share);
    add_all(p.layer ? known.of(p, [&] { return calls_of(task); }) : calls_of(task));
  };
  for (const Task& task : step_tasks(share, schedule, c.recompute)) add(task);
  for (const Task& task : update_tasks(share, false)) add(task);
  return traffic;
}

}  // namespace forge
