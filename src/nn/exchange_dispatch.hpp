#pragma once

#include "layout/dispatch_rounds.hpp"
#include "nn/dispatch.hpp"

namespace forge {

// model.dispatch all_to_all: rows go to their experts by all-to-all over ep and then a gather over etp; back, the etp
// ranks' parts of a sum, then all-to-all. layout/dispatch_rounds.hpp says who sends what.
template <class T>
class ExchangeDispatch final : public Dispatch<T> {
 public:
  using A = acc_t<T>;
  ExchangeDispatch(const Context<T>& ctx, const DispatchBuffers<T>& b, const DispatchScratch<T>& s);
  // What sort_assignments() does before: this rank's counts to all ranks.
  static void share(const Context<T>& ctx, const SortScratch& sorting, const DispatchBuffers<T>& b);

  int rounds() const override { return plan_.rounds(); }
  std::vector<std::int64_t> offsets(int round) const override { return plan_.offsets(round); }
  RowGroups groups(int round) const override;
  void prepare(int round) override;
  void send(int round, const RowsOut<T>& rows) override;
  View<T, 2> outbox(int round, View<T, 2> buffer) const override;
  void give_back(int round, View<const T, 2> rows, View<const A, 1> weights) override;
  void sum_rows(bool add, View<T, 2> y) override;
  void place_weights(View<A, 2> values) override;

 private:
  // Rows of one type on their way: where those of a round stand that go to each rank of ep, and that come from it.
  struct Traveller {
    DType type;
    std::int64_t columns;
    std::byte* received;
    std::vector<Communicator::Part> assignments, arrivals;
  };
  using Travellers = std::vector<Traveller>;

  static ExpertRanks ranks_of(const Context<T>& ctx);

  void sort_received(int round);
  // Rows of P; those of a stretch begin where rows of `pitch` elements would.
  template <class P>
  Traveller traveller(int round, View<P, 2> assignments, std::int64_t pitch, View<P, 2> received) const;
  void exchange_over_ep(Stream& stream, const Travellers& rows, bool back);
  void share_over_etp(int round, const Travellers& rows);
  template <class P>
  void add_of_etp(int round, View<P, 2> received, View<P, 2> peer_rows);

  const Context<T>& ctx_;
  DispatchBuffers<T> b_;
  DispatchScratch<T> s_;
  MoeShape shape_;
  ExpertRanks ranks_;
  DispatchPlan plan_;
  int sorted_ = -1;  // the round whose order of received rows stands in the buffers
};

}  // namespace forge
