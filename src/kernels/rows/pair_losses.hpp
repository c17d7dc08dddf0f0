#pragma once

#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290), with smoothed labels (Mitchell 2023, "A note
// on DPO with noisy preferences").
struct PairRule {
  double beta = 0, smoothing = 0;
  double per_pair = 0;  // 1 / pairs of the step, over all ranks
  bool counts = true;   // this rank adds to the sums; of ranks with the same pairs one does
};

// Losses of pairs i = 0 … n − 1 with texts 2 i, the preferred one, and 2 i + 1.
// loss(2n): cross-entropies of the texts, −log p; reference(2n): log p of the reference; NaN: padding, no pair.
//   x = beta ((log p − reference) of 2 i − (log p − reference) of 2 i + 1)
//   pair = −(1 − s) log σ(x) − s log σ(−x),  s = smoothing
//   weight[2 i] = d pair / d loss[2 i] · per_pair = beta ((1 − s) σ(−x) − s σ(x)) per_pair
//   weight[2 i + 1] = −weight[2 i]
//   loss_sum[0] += Σ pair;  sums[0] += Σ x;  sums[1] += number of x > 0
void pair_losses(Stream& stream, View<const double, 1> loss, View<const double, 1> reference, const PairRule& rule,
                 View<double, 1> weight, View<double, 1> loss_sum, View<double, 1> sums);

}  // namespace forge
