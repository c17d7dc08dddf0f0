#pragma once

#include "nn/buffer_set.hpp"
#include "nn/context.hpp"
#include "nn/tensors.hpp"

namespace forge {

// out(S,C) = dropout(tokens' rows + positions' rows). Every tp rank has some rows of the token table; tokens of others
// are −1 in the batch. `layer` keys the dropout: −1, or the layer of multi-token prediction that embeds its own tokens.
template <class T>
void embed_forward(Context<T>& ctx, const EmbeddingTensors<const T>& w, const BufferSet& slot, View<T, 2> out,
                   std::int64_t layer = -1);

// Adds d_out(S,C) to the rows of the tables; d_out is overwritten where dropout acts. Has no B: nothing lies below.
template <class T>
void embed_backward_weight(Context<T>& ctx, const EmbeddingTensors<acc_t<T>>& g, const BufferSet& slot,
                           View<T, 2> d_out, std::int64_t layer = -1);

}  // namespace forge
