#pragma once

#include <vector>

#include "layout/node_dispatch.hpp"
#include "nn/dispatch.hpp"

namespace forge {

// model.dispatch two_level: a row goes once to each node that has one of its experts, over ep_rail to the rank of the
// same place there, and from that to its experts over ep_node, in rounds; back, the node's results of a row are summed
// in A in the order (round, expert), and their source adds those of its nodes. layout/node_dispatch.hpp says who sends
// what.
template <class T>
class TwoLevelDispatch final : public Dispatch<T> {
 public:
  using A = acc_t<T>;
  // `fresh`: behind sort() and share(), so that the first send() takes the experts of records along.
  TwoLevelDispatch(const Context<T>& ctx, const DispatchBuffers<T>& b, const DispatchScratch<T>& s, bool fresh);
  // What sort_assignments() does before: records and their entries; then their counts to all ranks.
  static void sort(const Context<T>& ctx, View<const std::int32_t, 2> choices, const SortScratch& sorting,
                   const DispatchBuffers<T>& b, const DispatchScratch<T>& s);
  static void share(const Context<T>& ctx, const SortScratch& sorting, const DispatchBuffers<T>& b);

  int rounds() const override { return plan_.rounds(); }
  std::vector<std::int64_t> offsets(int round) const override { return plan_.of_node().offsets(round); }
  RowGroups groups(int round) const override;
  void prepare(int) override {}
  void send(int round, const RowsOut<T>& rows) override;
  View<T, 2> outbox(int round, View<T, 2> buffer) const override;
  void give_back(int round, View<const T, 2> rows, View<const A, 1> weights) override;
  void sum_rows(bool add, View<T, 2> y) override;
  void place_weights(View<A, 2> values) override;

 private:
  using Parts = std::vector<Communicator::Part>;
  // Rows of one type on their way: what this rank has for each of the others, and gets from it.
  struct Cargo {
    DType type;
    Parts sent, arrived;
  };
  using Ranges = std::vector<Range>;

  template <class P>
  static Cargo cargo(View<P, 2> from, const Ranges& sent, View<P, 2> to, const Ranges& arrived);
  template <class P>
  Cargo of_records(View<P, 2> here, View<P, 2> staged) const {
    return cargo(here, plan_.records_sent(), staged, plan_.records_staged());
  }
  static void exchange(Communicator& group, Stream& stream, const std::vector<Cargo>& all, bool back);
  std::int64_t records() const { return plan_.records_sent().back().end; }
  std::int64_t staged() const { return plan_.records_staged().back().end; }
  // Rows of a round, by the node's ranks: their places in the order of staged assignments; the same, one behind the
  // other; and where those of each rank arrive.
  Ranges places(int round) const;
  Ranges packed(int round) const;
  Ranges arrivals(int round) const;
  void stage(const RowsOut<T>& rows);
  void sort_staged();
  void send_in_node(int round, const RowsOut<T>& rows);
  void sort_received(int round);

  const Context<T>& ctx_;
  DispatchBuffers<T> b_;
  DispatchScratch<T> s_;
  MoeShape shape_;
  ExpertRanks ranks_;
  NodeDispatchPlan plan_;
  bool fresh_;
  const void* staged_ = nullptr;  // whose rows are staged
  int sorted_ = -1;               // the round whose order of received rows stands in the buffers
  bool summed_ = false;           // the sums hold something of this pass
  bool weighed_ = false;          // gradients of weights go back, too
};

}  // namespace forge
