#include "nn/delta_exchange.hpp"

#include "kernels/rows/order_rows.hpp"

namespace forge {

// Block p of R rows: of this rank's rows and rank p's heads → of rank p's rows and this rank's heads.
template <class T>
void DeltaExchange<T>::exchange(const View<T, 2>& from, const View<T, 2>& to) const {
  ctx_.groups.cp->all_to_all(ctx_.stream, from.data, to.data, from.size() / ctx_.groups.cp_size(), dtype_of<T>);
}

template <class T>
void DeltaExchange<T>::to_heads(std::span<const HeadColumns<T>> kinds, View<T, 2> heads) const {
  const std::int64_t ranks = ctx_.groups.cp_size();
  const View<T, 2> sent(s_.a.data, heads.extents), arrived(s_.b.data, heads.extents);
  std::int64_t at = 0;
  for (const HeadColumns<T>& kind : kinds) {
    const std::int64_t columns = kind.rows.columns() / ranks;
    columns_to_blocks<T>(ctx_.stream, kind.rows, ranks, kind.size, columns_of(sent, at, columns));
    at += columns;
  }
  exchange(sent, arrived);
  rows_by_position<T>(ctx_.stream, ranks, ctx_.buffers.microbatch.sequences, arrived, heads);
}

template <class T>
void DeltaExchange<T>::to_rows(View<T, 2> heads, std::span<const HeadColumns<T>> kinds) const {
  const std::int64_t ranks = ctx_.groups.cp_size();
  const View<T, 2> sent(heads.data == s_.a.data ? s_.b.data : s_.a.data, heads.extents);
  rows_by_rank<T>(ctx_.stream, ranks, ctx_.buffers.microbatch.sequences, heads, sent);
  exchange(sent, heads);
  std::int64_t at = 0;
  for (const HeadColumns<T>& kind : kinds) {
    const std::int64_t columns = kind.rows.columns() / ranks;
    blocks_to_columns<T>(ctx_.stream, columns_of(heads, at, columns), ranks, kind.size, kind.rows);
    at += columns;
  }
}

FORGE_INSTANTIATE_CLASS(DeltaExchange);

}  // namespace forge
