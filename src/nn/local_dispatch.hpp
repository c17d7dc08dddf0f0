#pragma once

#include "layout/boxes.hpp"
#include "nn/dispatch.hpp"

namespace forge {

// Where a rank has all experts, whole, nothing is sent: a round takes `round_rows` places of the rank's own order of
// assignments. How many there are the host knows from their shape, unless MoeShape::reads_counts.
template <class T>
class LocalDispatch final : public Dispatch<T> {
 public:
  using A = acc_t<T>;
  LocalDispatch(const Context<T>& ctx, const DispatchBuffers<T>& b, const DispatchScratch<T>& s);

  int rounds() const override;
  std::vector<std::int64_t> offsets(int round) const override;
  RowGroups groups(int round) const override;
  void prepare(int) override {}
  void send(int round, const RowsOut<T>& rows) override;
  View<T, 2> outbox(int round, View<T, 2> buffer) const override;
  void give_back(int round, View<const T, 2> rows, View<const A, 1> weights) override;
  void sum_rows(bool add, View<T, 2> y) override;
  void place_weights(View<A, 2> values) override;

 private:
  // The places that a round takes.
  Range window(int round) const;

  const Context<T>& ctx_;
  DispatchBuffers<T> b_;
  DispatchScratch<T> s_;
  MoeShape shape_;
  std::vector<std::int64_t> begins_;  // (E + 1) of experts; empty where the device alone knows them
  std::int64_t rows_;                 // of all rounds
};

}  // namespace forge
