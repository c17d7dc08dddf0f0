#pragma once

#include "nn/buffer_set.hpp"
#include "nn/context.hpp"
#include "nn/tensors.hpp"

namespace forge {

// The input of a module of multi-token prediction (Liu et al. 2024, "DeepSeek-V3", arXiv 2412.19437, section 2.2). With
// h_0 the output of the model's final norm, depth d = 1, 2, … computes
//   h'_d(t) = M_d [RMSNorm(embedding of token t + d), RMSNorm(h_(d−1)(t))],   h_d = RMSNorm(block_d(h'_d))
// and its loss is the cross-entropy of label t + 1 + d with the logits output(h_d), output being the model's:
// nn/block.hpp and nn/head.hpp with the module's parameters. That h is the normalised state, and what comes first in
// the product, is how transformers reads the published checkpoint (modeling_layers.MtpModel); the paper leaves both
// open. `s`: the depth's batch (batch_of_mtp) and saved_of_mtp, with recomputed_of_mtp; mtp_embedding holds the
// embedding (embed_forward). Rows are those of the stream: M_d is whole on every tp rank.

// mtp_embedding, hidden(S,C) → x of `s`.
template <class T>
void mtp_input_forward(Context<T>& ctx, const MtpTensors<const T>& w, View<const T, 2> hidden, const BufferSet& s);

// Recomputes what the recompute policy didn't save.
template <class T>
void mtp_input_recompute(Context<T>& ctx, const MtpTensors<const T>& w, View<const T, 2> hidden, const BufferSet& s);

// B: adds to d_hidden(S,C), from d_x(S,C); the gradients of the two norms, and those of the rows of the token table,
// which wait for nothing. `s` also holds scratch_backward_mtp.
template <class T>
void mtp_input_backward(Context<T>& ctx, std::int64_t layer, const MtpTensors<const T>& w,
                        const MtpTensors<acc_t<T>>& g, const EmbeddingTensors<acc_t<T>>& table, View<const T, 2> hidden,
                        const BufferSet& s, View<const T, 2> d_x, View<T, 2> d_hidden);

// W: the gradient of M_d.
template <class T>
void mtp_input_backward_weight(Context<T>& ctx, const MtpTensors<acc_t<T>>& g, const BufferSet& s,
                               View<const T, 2> d_x);

}  // namespace forge
