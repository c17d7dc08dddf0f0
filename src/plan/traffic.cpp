#include "plan/traffic.hpp"

#include "core/to_size.hpp"
#include "layout/layer_kinds.hpp"
#include "layout/reductions.hpp"
#include "nn/router.plan.hpp"
#include "nn/run.plan.hpp"

namespace forge {

GroupSizes group_sizes(const ModelSpec& whole, const MeshShape& m, const RankShare& share) {
  GroupSizes sizes{};
  const auto set = [&](Group group, std::int64_t size) { sizes[to_size(group)] = size; };
  set(Group::scalars, m.world());
  set(Group::tp, m.tp);
  set(Group::cp, m.cp);
  set(Group::pp, m.pp);
  set(Group::gradients, m.data_parallel() * m.cp);
  set(Group::gradient_shards, m.dense_shards());
  set(Group::gradient_replicas, m.dp_replicate);
  set(Group::gradient_tp, m.tp);
  set(Group::gradient_copies, kv_copies(whole, m.tp));
  set(Group::gradient_tied, share.table_stages);
  set(Group::parameter_shards, m.dense_shards());
  set(Group::ep, m.ep);
  set(Group::etp, m.etp);
  set(Group::expert_gradients, m.edp);
  set(Group::expert_gradient_shards, m.expert_shards());
  set(Group::expert_gradient_replicas, m.expert_replicas());
  set(Group::expert_parameter_shards, m.expert_shards());
  set(Group::matrices, m.dense_shards() * m.tp);
  set(Group::expert_matrices, m.expert_shards() * m.etp);
  return sizes;
}

std::int64_t bytes_of(const Sent& s, const GroupSizes& sizes) {
  const std::int64_t ranks = sizes[to_size(s.group)];
  if (ranks == 1) return 0;
  return s.times * sent_elements(s.collective, s.count, ranks) * static_cast<std::int64_t>(size_of(s.type));
}

namespace {

std::vector<Sent> gather_of(const BufferContext& c, const RankShare& share, std::size_t u) {
  const LocalUnit& unit = share.units[u];
  const Group group = unit.is_experts() ? Group::expert_parameter_shards : Group::parameter_shards;
  const bool coded = share.coded.has(u);
  std::vector<Sent> list{{group, Collective::all_gather, unit.shard().size(), coded ? DType::u8 : c.precision.compute}};
  if (coded && share.coded.units[u].others_of_shard > 0)
    list.push_back({group, Collective::all_gather, share.coded.units[u].others_of_shard, c.precision.compute});
  return list;
}

// Largest magnitudes of weights that are gathered as codes.
std::vector<Sent> sends_of_amaxes(const CodedUnits& coded) {
  std::vector<Sent> list;
  if (coded.dense > 0) list.push_back({Group::matrices, Collective::all_reduce, coded.dense, DType::f32});
  if (coded.experts > 0) list.push_back({Group::expert_matrices, Collective::all_reduce, coded.experts, DType::f32});
  return list;
}

std::vector<Sent> reductions_of(const LocalUnit& unit, bool last, DType type) {
  std::vector<Sent> list;
  const auto add = [&](const Reduction& r) { list.push_back({r.group, r.collective, r.part.size(), type}); };
  if (unit.zero.reduce_each || last) add(reduction_over_shards(unit));
  if (last)
    for (const Reduction& r : step_reductions(unit)) add(r);
  return list;
}

// A round's parts on their way to the owners, and back.
std::vector<Sent> sends_of_matrices(const BufferContext& c, const MatrixRound& round, bool back) {
  std::int64_t count = 0;
  for (const HeldPart& part : round.held)
    if (!back && part.sends && part.owner != round.rank) count += part.elements.size();
  for (const MatrixStack& stack : round.stacks)
    for (const OwnedPart& part : stack.parts)
      if (back && part.holder != round.rank) count += part.count;
  return {{round.experts ? Group::expert_matrices : Group::matrices, Collective::send, count, c.precision.compute}};
}

// Losses of sources, loss, z and squared norm; losses of multi-token prediction; routers' loads and losses; the largest
// attention logits; largest magnitudes of tensors in FP8.
std::vector<Sent> sums_of_scalars(const BufferContext& c) {
  const std::int64_t depths = c.spec.options.mtp_depth;
  std::vector<Sent> list{{Group::scalars, Collective::all_reduce, c.sources + 3, DType::f64}};
  if (depths > 0) list.push_back({Group::scalars, Collective::all_reduce, 2 * depths, DType::f64});
  if (c.spec.E() > 0)
    list.push_back(
        {Group::scalars, Collective::all_reduce, (c.spec.L() + depths) * (c.spec.E() + router_sum_count), DType::f64});
  if (c.attention_peaks)
    list.push_back(
        {Group::scalars, Collective::all_reduce, (c.spec.L() + depths) * c.spec.H() * c.tp, c.precision.accumulate});
  if (c.fp8.history > 0) list.push_back({Group::scalars, Collective::all_reduce, Fp8History::rows(c.spec), DType::f32});
  return list;
}

}  // namespace

std::vector<Sent> sends_of(const BufferContext& c, const RankShare& share, const Task& task) {
  if (const LayerPass p = pass_of(task, share); p.layer) return sends_of(c, *p.layer, p.pass, p.recompute);
  switch (task.op) {
    case TaskOp::gather:
      return gather_of(c, share, task.unit);
    case TaskOp::weight_amaxes:
      return sends_of_amaxes(share.coded);
    case TaskOp::reduce_gradients:
      return reductions_of(share.units[task.unit], task.last, c.precision.accumulate);
    case TaskOp::reduce_tied: {
      const LocalUnit& table = share.units[task.unit];
      return {{Group::gradient_tied, Collective::all_reduce, table.state().size(), c.precision.accumulate}};
    }
    case TaskOp::clip:
      return sums_of_scalars(c);
    case TaskOp::unit_norms:
      if (!counts_fp8(c)) return {{Group::scalars, Collective::all_reduce, 2 * c.normed_units, DType::f64}};
      return {{Group::scalars, Collective::all_reduce, 2 * c.normed_units, DType::f64},
              {Group::scalars, Collective::all_reduce, fp8_count_rows * fp8_count_columns, DType::f64}};
    case TaskOp::gather_matrices:
    case TaskOp::return_matrices:
      return sends_of_matrices(c, share.matrices.rounds[to_size(task.round)], task.op == TaskOp::return_matrices);
    case TaskOp::update_factored: {
      const FactoredUnit& unit = share.factored.units[task.unit];
      const Group group = share.units[task.unit].is_experts() ? Group::expert_matrices : Group::matrices;
      return {{group, Collective::all_reduce, unit.moments + unit.tensor_count(), DType::f64},
              {group, Collective::all_reduce, unit.tensor_count(), DType::f64}};
    }
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
  const auto add = [&](const Task& task) {
    for (const Sent& s : sends_of(c, share, task))
      if (sizes[to_size(s.group)] > 1)
        traffic[to_size(s.group)].second.add(s.collective, bytes_of(s, sizes) / s.times, s.times);
  };
  for (const Task& task : step_tasks(share, schedule, c.recompute)) add(task);
  for (const Task& task : update_tasks(share, false)) add(task);
  return traffic;
}

}  // namespace forge
