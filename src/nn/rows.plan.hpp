#pragma once

#include <algorithm>

#include "model/buffers.hpp"
#include "nn/segments.plan.hpp"

namespace forge {

// What a layer does: forward, gradient of its input, gradient of its weights; `backward`: both gradients at once, with
// rows of tp ranks on their way behind products.
enum class Pass : std::uint8_t { forward, backward_input, backward_weight, backward };

// Whether recomputation leaves the gathered inputs of products in the frame of a block, for its `backward`.
inline bool keeps_gathered(const BufferContext& c) {
  return c.tp > 1 && c.recompute == Recompute::full;
}

// Workspace that the products and norms of one pass share.
template <class T>
struct RowScratch {
  View<T, 2> all_rows;        // (R, C) gathered rows, or this rank's part of a sum over tp; tp > 1 only
  View<acc_t<T>, 1> partial;  // column sums of some rows; of a LayerNorm, for its weights and for its biases

  void list_rows(BufferLister& l) {
    if (l.c.tp > 1) l.add(all_rows, "rows of all tp ranks", l.R, l.spec.C());
  }
  void list_partial(BufferLister& l, std::int64_t columns) {
    l.add(partial, "column sums", norm_partial_rows(l.R), columns);
  }
  // Of norms of the residual stream, too, and of those of heads of so many columns.
  void list_norm(BufferLister& l, std::int64_t columns, std::int64_t head = 0) {
    const std::int64_t sums = l.spec.layernorm() ? 2 : 1;
    const std::int64_t of_heads = (norm_backward_chunks(l.R) * head + columns - 1) / columns;
    l.add(partial, "column sums", std::max({norm_partial_rows(l.R), sums * norm_backward_chunks(l.S), of_heads}),
          columns);
  }
};

}  // namespace forge
