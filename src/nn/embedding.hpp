#pragma once

#include "nn/context.hpp"
#include "nn/embedding.plan.hpp"

namespace forge {

// out(S,C) = dropout(tokens' rows + positions' rows). Every tp rank has some rows of the token table; tokens of others
// are −1 in the batch. `layer` keys the dropout: −1, or the layer of multi-token prediction that embeds its own tokens.
template <class T>
struct Embedding {
  const Context<T>& ctx;
  const Batch& batch;
  std::int64_t layer = -1;

  void forward(const EmbeddingParameters<const T>& w, View<T, 2> out) const;
  // Adds d_out(S,C) to the rows of the tables; d_out is overwritten where dropout acts. Has no B: nothing lies below.
  void backward_weight(const EmbeddingParameters<acc_t<T>>& g, View<T, 2> d_out) const;
};

}  // namespace forge
