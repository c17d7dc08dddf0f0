#include "plan/task_segments.hpp"

#include "core/to_size.hpp"
#include "layout/layer_kinds.hpp"
#include "nn/attention_layer.plan.hpp"
#include "nn/moe.plan.hpp"
#include "nn/run.plan.hpp"
#include "plan/pass_memo.hpp"

namespace forge {

Segments segments_of(const BufferContext& c, const RankShare& share, const Task& task) {
  const LayerPass p = pass_of(task, share);
  if (p.layer) return segments_of(c, share.cp_rank, *p.layer, p.pass, p.recompute);
  Segments list(c, share.cp_rank);
  if (task.op == TaskOp::weight_amaxes) list_weight_amaxes(list, share.coded, share.units);
  if (task.op == TaskOp::compute_matrices) list_round(list, share.matrices.rounds[to_size(task.round)]);
  return list;
}

double flops_of(const BufferContext& c, const RankShare& share, const std::vector<Task>& tasks) {
  double sum = 0;
  PassMemo<double> known;
  for (const Task& task : tasks) {
    const auto make = [&] { return segments_of(c, share, task).flops(); };
    const LayerPass p = pass_of(task, share);
    sum += p.layer ? known.of(p, make) : make();
  }
  return sum;
}

namespace {

// A product of as many rows as come to a rank's experts in a round at most, for those of one in which all come alike.
ScaledProduct largest(const BufferContext& c, ScaledProduct p) {
  if (p.experts == 0) return p;
  const std::int64_t rows = moe_shape(c).round_rows;
  p.a.rows = rows;
  p.a.by_row = lines_alone(rows);
  return p;
}

}  // namespace

RoundingSizes rounding_sizes(const BufferContext& c, const RankShare& share) {
  RoundingSizes sizes;
  if (!c.rounding.on) return sizes;
  for (const auto& chunk : share.layers)
    for (const StageLayer& layer : chunk)
      for (const Pass pass : {Pass::forward, Pass::backward_input, Pass::backward_weight})
        if (does(layer, pass))
          for (const ScaledProduct& p : segments_of(c, share.cp_rank, layer, pass).scaled)
            sizes.cover(c, largest(c, p));
  if (c.rounding.dispatch && counts_rounding(c))  // a step's rows, which are counted before they are sent
    for (const ProductOf of : {ProductOf::output, ProductOf::input_gradient})
      sizes.groups = std::max(sizes.groups, rows_to_experts(c, of, c.stream_rows()).groups());
  if (sizes.groups > 0) sizes.a = std::max(sizes.a, (1 + c.tp) * copied_gradients(c));
  return sizes;
}

}  // namespace forge
