#pragma once

#include <cstdint>

#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// Where an evaluation leaves the scores of each row's label; empty: nowhere.
struct RowScores {
  View<double, 1> log_likelihood;  // (R) natural logarithm; 0 where the label is masked
  // (R) 1 where a token of this tensor-parallel rank is preferred to the label: a larger logit, or an equal one and a
  // smaller id; else 0.
  View<std::int32_t, 1> beaten;

  FORGE_INLINE bool empty() const { return log_likelihood.empty(); }
  RowScores slice(std::int64_t begin, std::int64_t end) const {
    return {log_likelihood.slice(begin, end), beaten.slice(begin, end)};
  }
};

// Scores rows behind a loss without gradients: of its logits(R,V), of which the first `columns` are the vocabulary's
// from first_column on, and loss(R). statistics(ranks·R,3) of all tensor-parallel ranks (cross_entropy_statistics);
// empty: one rank has all columns.
template <class A>
void score_rows(Stream& stream, View<const A, 2> logits, std::int64_t columns, View<const std::int32_t, 1> labels,
                std::int64_t first_column, View<const A, 2> statistics, View<const A, 1> loss, const RowScores& to);

}  // namespace forge
