#pragma once

#include "nn/buffer_set.hpp"
#include "nn/context.hpp"
#include "nn/tensors.hpp"

namespace forge {

// Output product and cross-entropy, a chunk of rows at a time: full logits never exist.
struct LossScale {
  double per_label = 0;  // 1 / labels of the step, over all ranks
  double z_coefficient = 0;
};

// This tp rank's rows of the vocabulary: the first, and how many that aren't padding.
struct VocabularyPart {
  std::int64_t first = 0, rows = 0;
};

// The final norm: x_final → n_final of the slot.
template <class T>
void final_norm_forward(Context<T>& ctx, const HeadTensors<const T>& w, const BufferSet& slot);

// Adds the sums of loss and z to loss_sum[0] and z_sum[0]. With gradients, the logits' gradients are taken while the
// chunk is at hand (Hsu et al. 2024, "Liger"): they leave d_n_final in the slot for B, and are added to g.output. So
// the head's W runs here; the step's label count must be known before. With tp, each rank has some columns of the
// logits, and the ranks exchange three numbers a row (Shoeybi et al. 2019, arXiv 1909.08053); loss and z are those of
// all rows, the same on every tp rank. n_final of the slot is normalised.
template <class T>
void head_forward(Context<T>& ctx, const HeadTensors<const T>& w, const HeadTensors<acc_t<T>>* g, const BufferSet& slot,
                  VocabularyPart vocabulary, LossScale scale, View<double, 1> loss_sum, View<double, 1> z_sum);

// B: dx(S,C), the gradient of the last residual, from d_n_final, and those of the final norm.
template <class T>
void head_backward_input(Context<T>& ctx, const HeadTensors<const T>& w, const HeadTensors<acc_t<T>>& g,
                         const BufferSet& slot, View<T, 2> dx);

// logits(rows of x, V) of a few rows, for sampling; x(r,C) is the last residual, n(r,C) and rstd/mean(r) scratch.
template <class T>
void head_logits(Context<T>& ctx, const HeadTensors<const T>& w, View<const T, 2> x, View<T, 2> n,
                 View<acc_t<T>, 1> mean, View<acc_t<T>, 1> rstd, View<acc_t<T>, 2> logits);

}  // namespace forge
