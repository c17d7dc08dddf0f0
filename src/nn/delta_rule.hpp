#pragma once

#include "kernels/delta/delta.hpp"
#include "nn/context.hpp"
#include "nn/delta_rule.plan.hpp"

namespace forge {

// The gated delta rule over the rows of a microbatch, chunk by chunk, as kernels/delta/delta.hpp has it: products of
// chunks and states, and kernels between them.
template <class T>
class DeltaRule {
 public:
  using A = acc_t<T>;
  // mixed(R, channels): q, k and v behind their convolution.
  DeltaRule(const Context<T>& ctx, const Documents& documents, View<const T, 2> mixed, const DeltaGates<T>& gates);
  // The next tokens of a generation's texts, with the state that is kept, (heads Dk, Dv); forward alone.
  DeltaRule(const Context<T>& ctx, const DeltaRows& rows, View<A, 2> kept, View<const T, 2> mixed,
            const DeltaGates<T>& gates);

  // → out(R, value heads · Dv)
  void forward(const DeltaForward<T>& s, View<T, 2> out) const;
  // d_out → d_mixed, db, da, and of each row the gradient of log_decay (R, value heads).
  void backward(const DeltaBackward<T>& s, View<const T, 2> d_out, View<T, 2> d_mixed, View<T, 2> db, View<T, 2> da,
                View<A, 2> d_decay) const;

 private:
  DeltaTokens<A> tokens(const DeltaWork<T>& s) const;
  DeltaSlopes<A> slopes(const DeltaBackward<T>& s) const;
  void prepare(const DeltaWork<T>& s) const;
  void find_states(const DeltaBackward<T>& s) const;
  void chunk_backward(const DeltaBackward<T>& s, std::int64_t c) const;
  void before_chunks(const DeltaBackward<T>& s) const;
  // The rows of a chunk, of all heads, or its numbers.
  View<A, 2> chunk(const View<A, 2>& x, std::int64_t c) const {
    const std::int64_t rows = shape_.heads() * shape_.chunk();
    return x.slice(c * rows, (c + 1) * rows);
  }
  View<A, 1> chunk(const View<A, 1>& x, std::int64_t c) const {
    return x.slice(c * shape_.heads(), (c + 1) * shape_.heads());
  }
  // S before chunk c >= 1.
  View<A, 2> state(const DeltaBackward<T>& s, std::int64_t c) const {
    const std::int64_t rows = shape_.heads() * shape_.key_dim;
    return s.states.slice((c - 1) * rows, c * rows);
  }
  // Groups of `rows` rows each: c = beta c + alpha a op(b), or c = beta c + alpha aᵀ b of each group.
  void rows(const View<A, 2>& a, Transpose tb, const View<A, 2>& b, std::int64_t rows_of_b, double beta,
            const View<A, 2>& c, double alpha = 1) const;
  void sums(const View<A, 2>& a, const View<A, 2>& b, double beta, const View<A, 2>& c, double alpha = 1) const;

  const Context<T>& ctx_;
  const DeltaShape shape_;
  const Documents documents_ = {};
  const DeltaRows rows_ = {};
  const View<A, 2> kept_ = {};
  const View<const T, 2> mixed_;
  const DeltaGates<T> gates_;
};

}  // namespace forge
