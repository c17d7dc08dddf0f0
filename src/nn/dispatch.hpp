#pragma once

#include "layout/dispatch.hpp"
#include "model/moe_buffers.hpp"
#include "nn/buffer_set.hpp"
#include "nn/context.hpp"

namespace forge {

// Moves the rows of a layer's pairs to the ranks that have their experts, and back (layout/dispatch.hpp says who sends
// what): all-to-all over ep, then a gather over etp; back, the etp ranks' parts of a sum, then all-to-all. Works on the
// exchange buffers of model/moe_buffers.cpp in `s`. The host reads the counts once, here; every rank of the group then
// takes the same number of rounds, and in each calls the same operations.
template <class T>
class Dispatch {
 public:
  using A = acc_t<T>;

  // Forward: from the choices (the kept ones, where a capacity dropped some) to the order of pairs and all sources'
  // counts, which stay in the slot.
  static Dispatch sort(Context<T>& ctx, const BufferSet& s);
  // Backward: what sort() left.
  Dispatch(Context<T>& ctx, const BufferSet& s);

  int rounds() const { return plan_.rounds(); }
  // Where each expert's rows of a round begin, for grouped products; the last entry: all rows.
  std::vector<std::int64_t> offsets(int round) const { return plan_.offsets(round); }

  // to(N, C), by expert: rows of x(S, C), once for each choice.
  void send_rows(int round, View<const T, 2> x, View<T, 2> to);
  // to(N), by expert: values(S, k).
  void send_weights(int round, View<const A, 2> values, View<A, 1> to);
  // The way back, of rows that stand in outbox(round, …): `buffer`, or, where nothing moves, the pairs' own places.
  // After all rounds: y(S, C), (+)= over the choices of a row, of which dropped ones count 0.
  View<T, 2> outbox(int round, Buf buffer) const;
  void return_rows(int round, View<const T, 2> from);
  void sum_rows(bool add, View<T, 2> y);
  // And values(S, k); 0 for dropped ones.
  void return_weights(int round, View<A, 1> from);
  void place_weights(View<A, 2> values);

 private:
  template <class P>
  View<P, 2> first(Buf id, std::int64_t rows) const {
    return s_.template matrix<P>(id).slice(0, rows);
  }
  View<const std::int32_t, 1> order() const { return s_.template vector<std::int32_t>(Buf::pair_order); }
  View<const std::int32_t, 2> place() const { return s_.template matrix<std::int32_t>(Buf::pair_place); }
  static ExpertRanks ranks_of(const Context<T>& ctx);
  static std::vector<std::int64_t> read_counts(Context<T>& ctx, const BufferSet& s);

  void sort_arrivals(int round);
  // Rows of `columns` elements: pairs ↔ arrived, in the round.
  template <class P>
  void exchange_out(int round, View<P, 2> pairs, View<P, 2> arrived);
  template <class P>
  void exchange_back(int round, View<P, 2> arrived, View<P, 2> peer, View<P, 2> pairs);

  Context<T>& ctx_;
  const BufferSet& s_;
  MoeShape shape_;
  ExpertRanks ranks_;
  DispatchPlan plan_;
  int sorted_ = -1;  // the round whose order of arrivals stands in the buffers
};

}  // namespace forge
