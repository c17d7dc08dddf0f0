#pragma once

#include "nn/rows.hpp"

namespace forge {

// What attention and the feed-forward layer share: both end in an output projection and join the residual stream.

template <class T>
Dropout dropout_of(const Context<T>& ctx, std::int64_t layer, DropoutPlace place, const BufferSet& s) {
  if (ctx.dropout_rate() == 0) return {};
  return {ctx.dropout_rate(), ctx.dropout_key(layer, place), own_rows(ctx.groups, s.vector<std::int64_t>(Buf::samples)),
          own_rows(ctx.groups, s.vector<std::int32_t>(Buf::positions))};
}

// Gradient of an output projection's result, all rows: d(S,C) itself, or through dropout and from all tp ranks in
// `buffer`.
template <class T>
View<const T, 2> output_rows(Context<T>& ctx, std::int64_t layer, DropoutPlace place, const BufferSet& s,
                             View<const T, 2> d, Buf buffer) {
  if (!s.has(buffer)) return d;
  const View<T, 2> all = s.matrix<T>(buffer), own = own_rows(ctx.groups, all);
  if (ctx.dropout_rate() > 0) {
    dropout<T>(ctx.stream, d, own, dropout_of(ctx, layer, place, s));
    d = own;
  }
  if (ctx.groups.tp_size() > 1) ctx.groups.tp->all_gather(ctx.stream, d, all);
  return all;
}

}  // namespace forge
