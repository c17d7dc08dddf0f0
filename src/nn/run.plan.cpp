#include "nn/run.plan.hpp"

namespace forge {

namespace {

Sent over_all(std::int64_t count, DType type) {
  return {Group::scalars, Collective::all_reduce, count, type};
}

}  // namespace

std::vector<Sent> scalar_sums(const BufferContext& c) {
  const std::int64_t depths = c.spec.options.mtp_depth, layers = c.spec.L() + depths;
  std::vector<Sent> list{over_all(c.leading_sums() + 3, DType::f64)};
  if (depths > 0) list.push_back(over_all(2 * depths, DType::f64));
  if (c.spec.E() > 0) list.push_back(over_all(layers * (c.spec.E() + router_sum_count), DType::f64));
  if (c.attention_peaks) list.push_back(over_all(layers * c.spec.H() * c.tp, c.precision.accumulate));
  if (c.rounding.history > 0) list.push_back(over_all(AmaxHistory::rows(c.spec), DType::f32));
  return list;
}

std::vector<Sent> norm_sums(const BufferContext& c) {
  std::vector<Sent> list{over_all(2 * c.normed_units, DType::f64)};
  if (counts_rounding(c)) list.push_back(over_all(rounding_count_rows * rounding_count_columns, DType::f64));
  return list;
}

}  // namespace forge
