#pragma once

#include "core/short_list.hpp"
#include "nn/delta_rule.plan.hpp"

namespace forge {

// The pure half of nn/delta_exchange.hpp. With e bytes of the compute type, R rows a rank, and this tp rank's channels
// of q, k, v, value heads Hv and their width Dv, a cp rank sends in forward (cp − 1) / cp · R (channels + 2 Hv) e of q,
// k, v, b and a, and (cp − 1) / cp · R Hv Dv e of what the rule gives; in backward as much of their gradients.

// Columns that a cp rank works on for all rows: of q, k, v, b and a; of the rule's result.
inline std::int64_t delta_head_columns(const BufferContext& c) {
  const DeltaShape s = delta_shape(c);
  return s.channels() + 2 * s.value_heads;
}
inline std::int64_t delta_value_columns(const BufferContext& c) {
  const DeltaShape s = delta_shape(c);
  return s.value_heads * s.value_dim;
}

// Channels whose taps stand side by side: columns `first` … of the rows that the convolution works on, of the layer's
// channels those from `channel` on.
struct ConvPart {
  std::int64_t first, channel, count;
};
// All of them; with several cp ranks this one's of q, of k and of v.
ShortList<ConvPart, 3> conv_parts(const BufferContext& c, int cp_rank);

// Rows of heads on their way over cp, (R cp, columns), which take turns; none on one rank.
template <class T>
struct DeltaHeads {
  View<T, 2> a, b;

  void list(BufferLister& l, const std::int64_t& columns) {
    if (l.c.microbatch.cp == 1) return;
    l.add(a, "heads of DeltaNet, a", l.c.microbatch.rows_of_all(), columns);
    l.add(b, "heads of DeltaNet, b", l.c.microbatch.rows_of_all(), columns);
  }
};
// Workspace of forward up to the rule, with several cp ranks.
template <class T>
struct DeltaProjections {
  View<T, 2> in;  // (R, columns)
  DeltaHeads<T> heads;

  void list(BufferLister& l) {
    if (l.c.microbatch.cp == 1) return;
    l.add(in, "projections of DeltaNet", l.R, l.spec.linear_columns());
    heads.list(l, delta_head_columns(l.c));
  }
};

// Rows of heads from this rank to all, or back, of so many columns of each head of all cp ranks together.
void list_delta_heads(Segments& list, std::int64_t columns, bool back);

}  // namespace forge
