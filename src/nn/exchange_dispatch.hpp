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
  void send_rows(int round, View<const T, 2> x, const std::optional<ScaledOperand>& codes, View<T, 2> to) override;
  void send_weights(int round, View<const A, 2> values, View<A, 1> to) override;
  View<T, 2> outbox(int round, View<T, 2> buffer) const override;
  void return_rows(int round, View<const T, 2> from) override;
  void sum_rows(bool add, View<T, 2> y) override;
  void return_weights(int round, View<A, 1> from) override;
  void place_weights(View<A, 2> values) override;

 private:
  static ExpertRanks ranks_of(const Context<T>& ctx);
  static std::vector<std::int64_t> read_counts(const Context<T>& ctx, const DispatchBuffers<T>& b);

  void sort_received(int round);
  void find_experts(int round);
  void send_codes(int round, View<const T, 2> x, const ScaledOperand& rows, View<T, 2> to);
  // Rows of `columns` elements: assignments ↔ received, in the round. What goes to a rank begins where assignments of
  // `pitch` elements would.
  template <class P>
  void exchange_out(int round, View<P, 2> assignments, std::int64_t pitch, View<P, 2> received);
  template <class P>
  void exchange_back(int round, View<P, 2> received, View<P, 2> peer, View<P, 2> assignments);

  const Context<T>& ctx_;
  DispatchBuffers<T> b_;
  DispatchScratch<T> s_;
  MoeShape shape_;
  ExpertRanks ranks_;
  DispatchPlan plan_;
  int sorted_ = -1;  // the round whose order of received rows stands in the buffers
};

}  // namespace forge
