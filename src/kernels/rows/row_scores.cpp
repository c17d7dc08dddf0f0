#include "kernels/rows/row_scores.hpp"

#include <cmath>

#include "device/parallel.hpp"

namespace forge {

template <class A>
void score_rows(Stream& stream, View<const A, 2> logits, std::int64_t columns, View<const std::int32_t, 1> labels,
                std::int64_t first_column, View<const A, 2> statistics, View<const A, 1> loss, const RowScores& to) {
  const std::int64_t rows = logits.rows(), ranks = statistics.empty() ? 0 : statistics.rows() / rows;
  parallel_rows(stream, rows, row_width<A>(columns), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const bool masked = labels[r] < 0;
    const std::int64_t label = masked ? 0 : labels[r] - first_column, n = masked ? 0 : columns;
    const A* x = logits.row(r);
    A at_label = ranks == 0 && !masked ? x[label] : -static_cast<A>(INFINITY);
    for (std::int64_t i = 0; i < ranks; ++i) {
      const A part = statistics.row(i * rows + r)[2];
      at_label = part > at_label ? part : at_label;
    }
    const A preferred = team.template sum<A>(
        n, [=](std::int64_t j) { return x[j] > at_label || (x[j] == at_label && j < label) ? A(1) : A(0); });
    if (!team.leads()) return;
    to.log_likelihood[r] = masked ? 0 : -static_cast<double>(loss[r]);
    to.beaten[r] = preferred > A(0) ? 1 : 0;
  });
}

FORGE_INSTANTIATE_ACC_FUNCTION(score_rows);

}  // namespace forge
