#pragma once

#include <span>

#include "nn/context.hpp"
#include "nn/delta_exchange.plan.hpp"

namespace forge {

// Columns of heads of one size, of a rank's own rows (R, heads · size).
template <class T>
struct HeadColumns {
  View<T, 2> rows;
  std::int64_t size;
};

// Heads of gated DeltaNet for positions (Jacobs et al. 2023, "DeepSpeed Ulysses"), whatever mesh.cp_method says: a
// recurrence over the zigzag of positions would take 2 cp steps, one behind the other. Of several cp ranks, rank c
// works on the c-th of cp equal parts of each kind's heads, of whole sequences in the order of positions.
template <class T>
class DeltaExchange {
 public:
  DeltaExchange(const Context<T>& ctx, const DeltaHeads<T>& buffers) : ctx_(ctx), s_(buffers) {}

  // This rank's rows of all heads → `heads` (R cp, columns), all rows of its own, kind behind kind. `heads` may be
  // buffers' a.
  void to_heads(std::span<const HeadColumns<T>> kinds, View<T, 2> heads) const;
  // … and back; `heads` is overwritten, and may be buffers' a or b.
  void to_rows(View<T, 2> heads, std::span<const HeadColumns<T>> kinds) const;

 private:
  void exchange(const View<T, 2>& from, const View<T, 2>& to) const;

  const Context<T>& ctx_;
  const DeltaHeads<T>& s_;
};

}  // namespace forge
