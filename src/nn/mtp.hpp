#pragma once

#include "nn/embedding.hpp"
#include "nn/mtp.plan.hpp"

namespace forge {

// The input of a module of multi-token prediction (Liu et al. 2024, "DeepSeek-V3", arXiv 2412.19437, section 2.2). With
// h_0 the output of the model's final norm, depth d = 1, 2, … computes
//   h'_d(t) = M_d [RMSNorm(embedding of token t + d), RMSNorm(h_(d−1)(t))],   h_d = RMSNorm(block_d(h'_d))
// and its loss is the cross-entropy of label t + 1 + d with the logits output(h_d), output being the model's:
// nn/block.hpp and nn/head.hpp with the module's parameters. That h is the normalised state, and what comes first in
// the product, is how transformers reads the published checkpoint (modeling_layers.MtpModel); the paper leaves both
// open. Rows are those of the stream: M_d is whole on every tp rank.
template <class T>
struct MtpInput {
  const Context<T>& ctx;
  std::int64_t layer;
  const Batch& batch;       // the depth's: shifted tokens
  View<const T, 2> hidden;  // (S, C) the state before
  MtpBuffers<T> b;
  MtpParameters<const T> w{};
  MtpParameters<acc_t<T>> g{};

  // hidden → x(S,C), the block's input.
  void forward(const EmbeddingParameters<const T>& table, View<T, 2> x);
  // Recomputes what the recompute policy didn't save.
  void recompute() const;
  // B: adds to d_hidden(S,C), from d_x(S,C); the gradients of the two norms, and those of the rows of the token table,
  // which wait for nothing.
  void backward_input(const EmbeddingParameters<acc_t<T>>& table, View<const T, 2> d_x, View<T, 2> d_hidden) const;
  // W: the gradient of M_d.
  void backward_weight(View<const T, 2> d_x) const;

 private:
  void normalise() const;
};

}  // namespace forge
