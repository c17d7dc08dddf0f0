#pragma once

#include "nn/rows.hpp"

namespace forge {

// What attention and the feed-forward layer share: both end in an output projection and join the residual stream.

template <class T>
Dropout dropout_of(const Context<T>& ctx, std::int64_t layer, DropoutPlace place, const Batch& batch) {
  if (ctx.dropout_rate() == 0) return {};
  return {ctx.dropout_rate(), ctx.dropout_key(layer, place), own_rows(ctx.groups, batch.samples),
          own_rows(ctx.groups, batch.positions)};
}

// Gradient of an output projection's result, all rows: d(S,C) itself, or through dropout and from all tp ranks in
// `all`, where that is not empty. norm_back(dy, dx): through the norm of the result, where it has one.
template <class T, class NormBack>
View<const T, 2> output_rows(const Context<T>& ctx, std::int64_t layer, DropoutPlace place, const Batch& batch,
                             View<const T, 2> d, View<T, 2> all, NormBack norm_back) {
  if (all.empty()) return d;
  const View<T, 2> own = own_rows(ctx.groups, all);
  if (ctx.dropout_rate() > 0) {
    dropout<T>(ctx.stream, d, own, dropout_of(ctx, layer, place, batch));
    d = own;
  }
  if (ctx.spec().norms_behind()) {
    norm_back(d, own);
    d = own;
  }
  if (ctx.groups.tp_size() > 1) ctx.groups.tp->all_gather(ctx.stream, d, all);
  return all;
}

}  // namespace forge
