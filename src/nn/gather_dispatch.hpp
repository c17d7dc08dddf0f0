#pragma once

#include <span>
#include <vector>

#include "layout/boxes.hpp"
#include "nn/dispatch.hpp"

namespace forge {

// model.dispatch all_gather, for few ranks: every rank gathers all rows of those that share the layer's experts, takes
// what goes to its own, and the sums come back by a reduce-scatter. No exchange of counts: every rank sorts all
// choices.
template <class T>
class GatherDispatch final : public Dispatch<T> {
 public:
  using A = acc_t<T>;
  GatherDispatch(const Context<T>& ctx, const DispatchBuffers<T>& b, const DispatchScratch<T>& s);
  // What sort_assignments() does before: the order of all ranks' choices.
  static void sort(const Context<T>& ctx, View<const std::int32_t, 2> choices, const SortScratch& sorting,
                   const DispatchBuffers<T>& b);

  int rounds() const override { return rounds_; }
  std::vector<std::int64_t> offsets(int round) const override;
  RowGroups groups(int round) const override;
  void prepare(int round) override;
  void send(int round, const RowsOut<T>& rows) override;
  View<T, 2> outbox(int round, View<T, 2> buffer) const override;
  void give_back(int round, View<const T, 2> rows, View<const A, 1> weights) override;
  void sum_rows(bool add, View<T, 2> y) override;
  void place_weights(View<A, 2> values) override;

 private:
  // This rank's places of a round in the order of all assignments; what stands there.
  Range window(int round) const;
  View<const std::int32_t, 1> order(int round) const;
  void send_rows(int round, const RowsOut<T>& rows);
  // The codes of all ranks' rows, where the rows stand otherwise.
  View<std::uint8_t, 2> gather_codes(View<const T, 2> x, const ScaledOperand& rows);
  // own(S, columns) of all ranks, by ep coordinate and etp coordinate; and the sum of all ranks' parts, own rows.
  template <class P>
  static void gather(Stream& stream, const LayerGroups& groups, View<const P, 2> own, View<P, 2> all);
  template <class P>
  void reduce(View<P, 2> all, View<P, 2> own);

  const Context<T>& ctx_;
  DispatchBuffers<T> b_;
  DispatchScratch<T> s_;
  MoeShape shape_;
  std::span<const std::int64_t> offsets_;  // (E + 1) in the order of all assignments
  int rounds_ = 1;
  const void* gathered_ = nullptr;  // whose rows stand in the group's buffer
  bool summed_ = false;             // the group's sums hold something of this pass
  bool weighed_ = false;            // the same of weights
};

}  // namespace forge
