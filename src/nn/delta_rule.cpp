#include "nn/delta_rule.hpp"

#include "core/to_size.hpp"
#include "device/device_memory.hpp"

namespace forge {

template <class T>
DeltaRule<T>::DeltaRule(const Context<T>& ctx, const Documents& documents, View<const T, 2> mixed,
                        const DeltaGates<T>& gates)
    : ctx_(ctx), shape_(delta_shape(ctx.buffers)), documents_(documents), mixed_(mixed), gates_(gates) {}

template <class T>
DeltaRule<T>::DeltaRule(const Context<T>& ctx, const DeltaRows& rows, View<A, 2> kept, View<const T, 2> mixed,
                        const DeltaGates<T>& gates)
    : ctx_(ctx), shape_(delta_shape(ctx.buffers)), rows_(rows), kept_(kept), mixed_(mixed), gates_(gates) {}

template <class T>
void DeltaRule<T>::rows(const View<A, 2>& a, Transpose tb, const View<A, 2>& b, std::int64_t rows_of_b, double beta,
                        const View<A, 2>& c, double alpha) const {
  const std::int64_t groups = a.rows() / shape_.chunk();
  if (ctx_.operations)
    ctx_.operations->experts(
        {false, groups, a.rows(), c.columns(), a.columns(), dtype_of<A>, dtype_of<A>, false, true});
  ctx_.gemm.template batched_rows<A>(ctx_.stream, shape_.chunk(), tb, alpha, a,
                                     View<const A, 3>(b.data, {{groups, rows_of_b, b.columns()}}), beta, c);
}

template <class T>
void DeltaRule<T>::sums(const View<A, 2>& a, const View<A, 2>& b, double beta, const View<A, 2>& c,
                        double alpha) const {
  const std::int64_t groups = a.rows() / shape_.chunk();
  if (ctx_.operations)
    ctx_.operations->experts({true, groups, a.rows(), a.columns(), b.columns(), dtype_of<A>, dtype_of<A>, false, true});
  ctx_.gemm.template batched_sums<A>(ctx_.stream, shape_.chunk(), alpha, a, b, beta,
                                     View<A, 3>(c.data, {{groups, a.columns(), b.columns()}}));
}

template <class T>
DeltaTokens<acc_t<T>> DeltaRule<T>::tokens(const DeltaWork<T>& s) const {
  const auto row = [&](std::int64_t i) { return View<A, 1>(s.tokens.row(i), {{s.tokens.columns()}}); };
  return {row(0), row(1), row(2), row(3), row(4)};
}

template <class T>
DeltaSlopes<acc_t<T>> DeltaRule<T>::slopes(const DeltaBackward<T>& s) const {
  const auto row = [&](std::int64_t i) { return View<A, 1>(s.slopes.row(i), {{s.slopes.columns()}}); };
  return {row(0), row(1), row(2), s.whole_slopes};
}

// q, k, β, g → X, P, εk, U, W
template <class T>
void DeltaRule<T>::prepare(const DeltaWork<T>& s) const {
  const DeltaTokens<A> of = tokens(s);
  const std::int64_t C = shape_.chunk();
  delta_split<T>(ctx_.stream, shape_, mixed_, gates_, rows_, s.q, s.k, s.u, of);
  delta_sums<A>(ctx_.stream, shape_, documents_, !kept_.empty(), of, s.whole);
  rows(s.k, Transpose::yes, s.k, C, 0, s.x);
  rows(s.q, Transpose::yes, s.k, C, 0, s.p);
  delta_masks<A>(ctx_.stream, shape_, documents_, of, s.k, s.x, s.p, s.end_k, s.w);
  delta_solve<A>(ctx_.stream, shape_, s.x, of.beta, s.u, false);
  delta_solve<A>(ctx_.stream, shape_, s.x, of.beta, s.w, false);
}

// O = λ Q S + P U', with U' = U − W S in U's place
template <class T>
void DeltaRule<T>::forward(const DeltaForward<T>& s, View<T, 2> out) const {
  prepare(s);
  const std::int64_t Dk = shape_.key_dim;
  const bool kept = !kept_.empty();
  const View<A, 2> state = kept ? kept_ : s.state, first = chunk(s.o, 0);
  if (!kept) fill_zero(ctx_.stream, first.data, to_size(first.size()) * sizeof(A));
  for (std::int64_t c = 0; c < shape_.chunks(); ++c) {
    const bool before = kept || c > 0;
    if (before) {
      rows(chunk(s.w, c), Transpose::no, state, Dk, 1, chunk(s.u, c), -1);
      rows(chunk(s.q, c), Transpose::no, state, Dk, 0, chunk(s.o, c));
    }
    if (!kept && c + 1 == shape_.chunks()) break;
    if (before) delta_scale_rows<A>(ctx_.stream, chunk(s.whole, c), Dk, state);
    sums(chunk(s.end_k, c), chunk(s.u, c), before ? 1 : 0, state);
  }
  delta_scale_rows<A>(ctx_.stream, tokens(s).begin, 1, s.o);
  rows(s.p, Transpose::no, s.u, shape_.chunk(), 1, s.o);
  delta_join<T>(ctx_.stream, shape_, s.o, out);
}

// States before chunks, and U' beside U.
template <class T>
void DeltaRule<T>::find_states(const DeltaBackward<T>& s) const {
  const std::int64_t Dk = shape_.key_dim;
  copy_on_device(ctx_.stream, s.new_u.data, s.u.data, to_size(s.u.size()) * sizeof(A));
  for (std::int64_t c = 0; c < shape_.chunks(); ++c) {
    if (c > 0) rows(chunk(s.w, c), Transpose::no, state(s, c), Dk, 1, chunk(s.new_u, c), -1);
    if (c + 1 == shape_.chunks()) break;
    const View<A, 2> next = state(s, c + 1);
    if (c > 0) {
      copy_on_device(ctx_.stream, next.data, state(s, c).data, to_size(next.size()) * sizeof(A));
      delta_scale_rows<A>(ctx_.stream, chunk(s.whole, c), Dk, next);
    }
    sums(chunk(s.end_k, c), chunk(s.new_u, c), c > 0 ? 1 : 0, next);
  }
}

// With dS of the state behind the chunk: dU' += εK dS, d(εK) = U' dSᵀ; dS ← λ_C dS + (λQ)ᵀ dO − Wᵀ dU'
template <class T>
void DeltaRule<T>::chunk_backward(const DeltaBackward<T>& s, std::int64_t c) const {
  const std::int64_t Dk = shape_.key_dim;
  const bool has_next = c + 1 < shape_.chunks();
  const View<A, 2> d_end_k = chunk(s.d_end_k, c);
  const View<A, 1> slope = chunk(s.whole_slopes, c);
  if (!has_next) fill_zero(ctx_.stream, d_end_k.data, to_size(d_end_k.size()) * sizeof(A));
  if (!has_next || c == 0) fill_zero(ctx_.stream, slope.data, to_size(slope.size()) * sizeof(A));
  if (has_next) {
    rows(chunk(s.end_k, c), Transpose::no, s.state, Dk, 1, chunk(s.y_v, c));
    rows(chunk(s.new_u, c), Transpose::yes, s.state, Dk, 0, d_end_k);
    if (c > 0) delta_state_slope<A>(ctx_.stream, shape_, chunk(s.whole, c), state(s, c), s.state, slope);
  }
  if (c == 0) return;
  if (has_next) delta_scale_rows<A>(ctx_.stream, chunk(s.whole, c), Dk, s.state);
  sums(chunk(s.begin_q, c), chunk(s.d_o, c), has_next ? 1 : 0, s.state);
  sums(chunk(s.w, c), chunk(s.y_v, c), 1, s.state, -1);
}

// d(λQ) = dO Sᵀ, dW = −dU' Sᵀ of all chunks; 0 of the first one, before which no state is.
template <class T>
void DeltaRule<T>::before_chunks(const DeltaBackward<T>& s) const {
  for (const View<A, 2>& x : {s.begin_q, s.y_k}) {
    const View<A, 2> first = chunk(x, 0);
    fill_zero(ctx_.stream, first.data, to_size(first.size()) * sizeof(A));
  }
  if (shape_.chunks() == 1) return;
  const auto later = [&](const View<A, 2>& x) { return x.slice(shape_.heads() * shape_.chunk(), x.rows()); };
  rows(later(s.d_o), Transpose::yes, s.states, shape_.key_dim, 0, later(s.begin_q));
  rows(later(s.y_v), Transpose::yes, s.states, shape_.key_dim, 0, later(s.y_k), -1);
}

template <class T>
void DeltaRule<T>::backward(const DeltaBackward<T>& s, View<const T, 2> d_out, View<T, 2> d_mixed, View<T, 2> db,
                            View<T, 2> da, View<A, 2> d_decay) const {
  prepare(s);
  find_states(s);
  const DeltaTokens<A> of = tokens(s);
  const DeltaSlopes<A> slopes = this->slopes(s);
  const std::int64_t C = shape_.chunk();
  delta_cut<T>(ctx_.stream, shape_, d_out, s.d_o);
  rows(s.d_o, Transpose::yes, s.new_u, C, 0, s.dp);
  sums(s.p, s.d_o, 0, s.y_v);
  copy_on_device(ctx_.stream, s.begin_q.data, s.q.data, to_size(s.q.size()) * sizeof(A));
  delta_scale_rows<A>(ctx_.stream, of.begin, 1, s.begin_q);
  for (std::int64_t c = shape_.chunks() - 1; c >= 0; --c) chunk_backward(s, c);
  before_chunks(s);
  delta_solve<A>(ctx_.stream, shape_, s.x, of.beta, s.y_v, true);
  delta_solve<A>(ctx_.stream, shape_, s.x, of.beta, s.y_k, true);
  rows(s.y_v, Transpose::yes, s.u, C, 0, s.dx, -1);
  rows(s.y_k, Transpose::yes, s.w, C, 1, s.dx, -1);
  delta_masks_backward<A>(ctx_.stream, shape_, documents_, of, s.x, s.p, s.dx, s.dp, slopes);
  rows(s.dp, Transpose::no, s.k, C, 0, s.dq);
  sums(s.dp, s.q, 0, s.dk);
  rows(s.dx, Transpose::no, s.k, C, 1, s.dk);
  sums(s.dx, s.k, 1, s.dk);
  delta_combine<T>(ctx_.stream, shape_, of, mixed_, s.q, s.k, s.begin_q, s.d_end_k, s.y_k, s.y_v, s.dq, s.dk, slopes);
  delta_sums_backward<A>(ctx_.stream, shape_, slopes);
  delta_split_backward<T>(ctx_.stream, shape_, mixed_, gates_, of, slopes, s.dq, s.dk, s.y_v, d_mixed, db, da, d_decay);
}

FORGE_INSTANTIATE_CLASS(DeltaRule);

}  // namespace forge
