#pragma once

#include <algorithm>
#include <vector>

#include "core/collectives.hpp"
#include "model/buffers.hpp"
#include "model/operations.hpp"

namespace forge {

// What a layer does: forward, gradient of its input, gradient of its weights.
enum class Pass : std::uint8_t { forward, backward_input, backward_weight };

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

// The collectives of a layer's pass, in no order.
class Sends {
 public:
  explicit Sends(const BufferContext& context) : c(context) {}

  const BufferContext& c;
  std::vector<Sent> list;

  void add(Group group, Collective collective, std::int64_t count, DType type, std::int64_t times = 1) {
    if (times > 0) list.push_back({group, collective, count, type, times});
  }
  // The largest magnitudes of a block's products in FP8.
  void amaxes(const Operations& operations) {
    for (const ScaledProduct& p : operations.scaled) {
      if (p.over_tp() > 0) add(p.splitters(), Collective::all_gather, p.over_tp(), DType::f32);
      if (p.over_cp() > 0) add(Group::cp, Collective::all_gather, p.over_cp(), DType::f32);
    }
  }
  // Rows of the residual stream over tp, C wide unless said.
  void rows(Collective collective) { rows(collective, c.spec.C()); }
  void rows(Collective collective, std::int64_t columns) {
    add(Group::tp, collective, c.stream_rows() * columns, c.precision.compute);
  }
};

}  // namespace forge
