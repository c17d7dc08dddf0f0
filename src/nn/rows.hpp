#pragma once

#include "device/side_stream.hpp"
#include "nn/block_products.hpp"

namespace forge {

// Sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198): the residual stream and the norms hold rows / tp,
// the tp ranks' parts one after the other; products hold all rows of some columns. With one rank nothing is moved.

// x(S,C) of every tp rank: (R,C), in `all`, or x itself.
template <class T>
View<const T, 2> gather_rows(const Context<T>& ctx, View<const T, 2> x, View<T, 2> all) {
  if (ctx.groups.tp_size() == 1) return x;
  ctx.groups.tp->all_gather(ctx.stream, x, all);
  return all;
}
template <class T>
View<const T, 2> gather_rows(const Context<T>& ctx, View<const T, 2> x, const RowScratch<T>& scratch) {
  return gather_rows<T>(ctx, x, scratch.all_rows);
}

// The rows of this tp rank among all rows.
template <class P, int N>
View<P, N> own_rows(const LayerGroups& groups, View<P, N> all) {
  const std::int64_t rows = all.rows() / groups.tp_size();
  return all.slice(groups.tp_rank() * rows, (groups.tp_rank() + 1) * rows);
}

// Where a product whose columns tp splits writes its part of the sum: all_rows, or y itself.
template <class T>
View<T, 2> partial_rows(const Context<T>& ctx, const RowScratch<T>& scratch, View<T, 2> y) {
  return ctx.groups.tp_size() == 1 ? y : scratch.all_rows;
}

// y(S,C) = this rank's rows of the sum over tp of partial(R,C); nothing to do where they are one.
template <class T>
void reduce_rows(const Context<T>& ctx, View<T, 2> partial, View<T, 2> y) {
  if (ctx.groups.tp_size() > 1) ctx.groups.tp->reduce_scatter(ctx.stream, View<const T, 2>(partial), y);
}

// x(S,K) of every tp rank as gather_rows().
template <class T>
RowOperand<T> gather_operand(const Context<T>& ctx, const RowOperand<T>& x, View<T, 2> all) {
  if (ctx.groups.tp_size() == 1) return x;
  return gather_rows<T>(ctx, x.values(), all);
}

// gather_rows() and reduce_rows() in the stream of exchanges, beside the compute stream's next work. One at a time:
// each ends with its wait(), and its rows must not be used before.
template <class T>
class RowsBehind {
 public:
  explicit RowsBehind(const Context<T>& ctx)
      : compute_(ctx.stream), side_(ctx.groups.stream), tp_(ctx.groups.tp_behind) {}

  // x(S,C) of every tp rank: (R,C), there from wait() on. `kept`: where recomputation left it, else empty.
  View<const T, 2> gather(View<const T, 2> x, View<T, 2> kept, View<T, 2> all) {
    if (!tp_) return x;
    if (!kept.empty()) return kept;
    run([&](Stream& stream) { tp_->all_gather(stream, x, all); });
    return all;
  }
  // y(S,C) = this rank's rows of the sum over tp of partial(R,C); nothing to do where they are one.
  void reduce(View<T, 2> partial, View<T, 2> y) {
    if (tp_) run([&](Stream& stream) { tp_->reduce_scatter(stream, View<const T, 2>(partial), y); });
  }
  void wait() {
    if (!std::exchange(started_, false)) return;
    tp_->wait(compute_, done_);
    side_.rethrow();
  }
  // Behind gathered rows, reduce() beside work(), which reads them.
  template <class Work>
  void reduce_beside(View<T, 2> partial, View<T, 2> y, const Work& work) {
    wait();
    reduce(partial, y);
    work();
    wait();
  }

 private:
  template <class Work>
  void run(Work work) {
    require(!started_, "rows are on their way");
    started_ = true;
    side_.run(compute_, done_, work);
  }

  Stream& compute_;
  SideStream side_;
  Communicator* tp_;
  Event done_;
  bool started_ = false;
};

// Of products beside which no adapter stands.
struct NoAdapter {
  void operator()(const auto&) const {}
};

// y(S,N) = Σ over tp of x(R,K/tp) Wᵀ + b; adapt(part of the sum) adds an adapter's product.
template <class T, class Adapt = NoAdapter>
void row_parallel_forward(const Context<T>& ctx, const MatrixSplit& split, const RowOperand<T>& x, View<const T, 2> w,
                          View<const T, 1> b, View<T, 2> y, const RowScratch<T>& scratch, Adapt adapt = {}) {
  const View<T, 2> partial = partial_rows(ctx, scratch, y);
  block_linear_forward<T>(ctx, split, x, w, {}, partial);
  adapt(partial);
  reduce_rows(ctx, partial, y);
  if (!b.empty()) add_bias<T>(ctx.stream, b, y);
}

}  // namespace forge
