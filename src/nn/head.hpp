#pragma once

#include "kernels/kernels.hpp"
#include "kernels/rows/pair_losses.hpp"
#include "kernels/rows/row_scores.hpp"
#include "nn/context.hpp"
#include "nn/head.plan.hpp"

namespace forge {

// Output product and cross-entropy, a chunk of rows at a time: full logits never exist.
struct LossScale {
  double per_label = 0;  // 1 / labels of the step, over all ranks; of pairs, 1 / pairs
  double z_coefficient = 0;
};

// Where losses are also added up by the source of their rows; empty: nowhere.
struct SourceSums {
  View<const std::int32_t, 1> sources;  // (R)
  View<double, 1> loss;                 // (sources)
};

// A microbatch's samples as pairs of texts, with PairRule's loss; empty: rows have losses of their own.
struct PairedRows {
  View<const std::int32_t, 1> texts;  // (R) Batch::texts
  View<const double, 1> references;   // (2 b)
  double beta = 0, smoothing = 0;
  View<double, 1> sums;  // (2) margins, and how many are above 0
};

// Where an evaluation leaves the logits of some rows, behind their soft cap; empty: nowhere.
template <class A>
struct RowLogits {
  View<const std::int32_t, 1> rows;  // (n) of the R; −1: none
  View<A, 2> logits;                 // (n, V) of this tp rank
};

// This tp rank's rows of the vocabulary: the first, and how many that aren't padding.
struct VocabularyPart {
  std::int64_t first = 0, rows = 0;
};

// The norm before the head: state(S,C) = norm(x(S,C)).
template <class T>
struct StateNorm {
  const Context<T>& ctx;
  View<const T, 2> x;
  const NormStatistics<T>& b;
  HeadParameters<const T> w{};
  HeadParameters<acc_t<T>> g{};

  void forward(View<T, 2> state) const;
  // B: dx(S,C), and the gradients of the norm.
  void backward_input(View<const T, 2> d_state, View<T, 2> dx) const;
};

// The head: logits(R,V) = state Wᵀ, and their cross-entropy. With gradients, the logits' gradients are taken while the
// chunk is at hand (Hsu et al. 2024, "Liger"): they leave d_state(S,C) for B, and are added to g. So the head's W runs
// here; the step's label count must be known before. With tp, each rank has some columns of the logits, and the ranks
// exchange three numbers a row (Shoeybi et al. 2019, arXiv 1909.08053); loss and z are those of all rows, the same on
// every tp rank.
// Of pairs the gradient of a row depends on the losses of both texts' rows, over all cp ranks: the head runs twice,
// first for these, then for the gradients, with one weight for each text.
template <class T>
struct Head {
  const Context<T>& ctx;
  View<const std::int32_t, 1> labels;  // (R)
  VocabularyPart vocabulary;
  View<const T, 2> w;     // (V, C)
  View<acc_t<T>, 2> g{};  // empty: no gradients, …
  bool frozen = false;    // … or none but the state's
  SourceSums by_source{};
  PairedRows pairs{};
  RowScores scores{};  // without gradients, like the next
  RowLogits<acc_t<T>> taken{};

  // Adds the sums of loss and z to loss_sum[0] and z_sum[0], and of loss to the sums of its rows' sources; sets the
  // scores of all rows, and takes the logits of some.
  void forward(View<const T, 2> state, View<T, 2> d_state, LossScale scale, View<double, 1> loss_sum,
               View<double, 1> z_sum) const;

 private:
  bool trains() const { return frozen || !g.empty(); }
  View<acc_t<T>, 2> chunk_logits(const HeadScratch<T>& s, View<const T, 2> n, std::int64_t begin,
                                 std::int64_t end) const;
  void chunk_loss(const HeadScratch<T>& s, std::int64_t begin, std::int64_t end, LossScale scale, View<T, 2> d_logits,
                  const RowWeights& weights = {}) const;
  void pair_losses(const HeadScratch<T>& s, View<const T, 2> n, LossScale scale, View<double, 1> loss_sum) const;
  void add_losses(const HeadScratch<T>& s, std::int64_t begin, std::int64_t end, View<double, 1> loss_sum,
                  View<double, 1> z_sum) const;
  void chunk_scores(const HeadScratch<T>& s, std::int64_t begin, std::int64_t end) const;
};

// logits(rows of x, V) of a few rows, for sampling; x(r,C) is the last residual, n(r,C) and rstd/mean(r) scratch.
template <class T>
void head_logits(const Context<T>& ctx, const HeadParameters<const T>& w, View<const T, 2> x, View<T, 2> n,
                 const NormStatistics<T>& statistics, View<acc_t<T>, 2> logits);

}  // namespace forge
