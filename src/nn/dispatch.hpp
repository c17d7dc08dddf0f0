#pragma once

#include <memory>
#include <optional>

#include "kernels/fp8/fp8_rows.hpp"
#include "nn/context.hpp"
#include "nn/dispatch.plan.hpp"
#include "nn/expert_rows.hpp"

namespace forge {

// Rows on their way to experts.
template <class T>
struct RowsOut {
  View<const T, 2> x;                  // (S, C)
  View<T, 2> to;                       // (N, C) by expert: rows of x, once for each choice
  std::optional<ScaledOperand> codes;  // rounded to this operand, they travel as codes (rows_to_codes)
  View<const acc_t<T>, 2> weights;     // (S, k); empty: none travel
  View<acc_t<T>, 1> weights_to;        // (N) by expert
};

// Moves the rows of a layer's assignments to the ranks that have their experts, and back, in rounds of bounded size.
// The host reads the counts of assignments once, in sort_assignments(), where MoeShape::reads_counts; every rank that
// shares the layer's experts then takes the same number of rounds, and in each calls the same operations.
template <class T>
class Dispatch {
 public:
  using A = acc_t<T>;
  virtual ~Dispatch() = default;
  Dispatch(const Dispatch&) = delete;
  Dispatch& operator=(const Dispatch&) = delete;

  virtual int rounds() const = 0;
  // Where each expert's rows of a round begin, for products one after the other; the last entry: all rows, N. Empty
  // where the host has read no counts.
  virtual std::vector<std::int64_t> offsets(int round) const = 0;
  // The same for products that find them on the device, once the round's rows are there.
  virtual RowGroups groups(int round) const = 0;
  ExpertRows rows(int round) const { return {offsets(round), groups(round)}; }
  // Rows of a round.
  std::int64_t count(int round) const { return groups(round).rows(); }

  // What sending in a round needs from the host, now; and the stream that sends, where it isn't the compute stream.
  virtual void prepare(int round) = 0;
  void send_in(Stream& stream) { stream_ = &stream; }

  virtual void send(int round, const RowsOut<T>& rows) = 0;
  // The way back, of rows that stand in outbox(round, …): `buffer` (N, C), or, where nothing moves, the assignments'
  // own places; and of the gradients of their weights (N), unless that is empty.
  virtual View<T, 2> outbox(int round, View<T, 2> buffer) const = 0;
  virtual void give_back(int round, View<const T, 2> rows, View<const A, 1> weights) = 0;
  // After all rounds: y(S, C), (+)= over the choices of a row, and values(S, k). Dropped ones count 0.
  virtual void sum_rows(bool add, View<T, 2> y) = 0;
  virtual void place_weights(View<A, 2> values) = 0;

 protected:
  explicit Dispatch(Stream& compute) : stream_(&compute) {}
  Stream& sending() const { return *stream_; }

 private:
  Stream* stream_;
};

// Forward: from the choices (the kept ones, where a capacity dropped some: else empty) to the order of assignments,
// which stays in `b`, and the counts, which the host keeps (HostCounts). Adds the assignments of each expert of this
// rank's rows, before any were dropped, to `load` (E), unless that is empty.
template <class T>
std::unique_ptr<Dispatch<T>> sort_assignments(const Context<T>& ctx, View<const std::int32_t, 2> choices,
                                              View<const std::int32_t, 2> kept, const SortScratch& sorting,
                                              const DispatchBuffers<T>& b, const DispatchScratch<T>& s,
                                              View<double, 1> load);
// Backward: from what that left.
template <class T>
std::unique_ptr<Dispatch<T>> sorted_assignments(const Context<T>& ctx, const DispatchBuffers<T>& b,
                                                const DispatchScratch<T>& s);

}  // namespace forge
