#include "kernels/rows/pair_losses.hpp"

#include "device/parallel.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

// With e = e^−|x|: log σ(x) = min(x, 0) − log(1 + e),  σ(|x|) = 1 / (1 + e).
void pair_losses(Stream& stream, View<const double, 1> loss, View<const double, 1> reference, const PairRule& rule,
                 View<double, 1> weight, View<double, 1> loss_sum, View<double, 1> sums) {
  note_rows(stream, "pair_losses", bytes_in(loss, reference), 0);
  const std::int64_t pairs = loss.rows() / 2;
  parallel_for(stream, 1, [=] FORGE_LAMBDA(std::int64_t) {
    double all = 0, margins = 0, right = 0;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double* const l = loss.data + 2 * i;
      const double* const f = reference.data + 2 * i;
      const bool padding = f[0] != f[0] || f[1] != f[1];
      const double x = padding ? 0 : rule.beta * ((-l[0] - f[0]) - (-l[1] - f[1]));
      const double e = math::exp(x > 0 ? -x : x), larger = 1 / (1 + e), smaller = e / (1 + e),
                   log_sum = math::log(1 + e);
      const double up = x > 0 ? larger : smaller, down = x > 0 ? smaller : larger;  // σ(x), σ(−x)
      const double s = rule.smoothing;
      const double slope = padding ? 0 : rule.beta * ((1 - s) * down - s * up) * rule.per_pair;
      weight[2 * i] = slope;
      weight[2 * i + 1] = -slope;
      if (padding) continue;
      all += (1 - s) * (log_sum - (x < 0 ? x : 0)) + s * (log_sum + (x > 0 ? x : 0));
      margins += x;
      right += x > 0 ? 1 : 0;
    }
    if (!rule.counts) return;
    loss_sum[0] += all;
    sums[0] += margins;
    sums[1] += right;
  });
}

}  // namespace forge
