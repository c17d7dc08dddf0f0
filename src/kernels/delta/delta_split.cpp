#include <cmath>

#include "device/parallel.hpp"
#include "kernels/delta/delta_places.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

namespace {

constexpr double norm_epsilon = 1e-6;  // of x / √(x·x + ε), as Flash Linear Attention's kernels have it

// ln(1 + eˣ)
template <class A>
FORGE_INLINE A softplus(A x) {
  return x > A(20) ? x : A(std::log1p(math::exp(x)));
}

// Where columns of q, k and v begin, and how many value heads share a key head.
struct DeltaColumns {
  std::int64_t q, k, v, shared;

  FORGE_INLINE explicit DeltaColumns(const DeltaShape& s)
      : q(0), k(s.key_heads * s.key_dim), v(2 * s.key_heads * s.key_dim), shared(s.value_heads / s.key_heads) {}
};

template <class A, class T>
FORGE_INLINE A inverse_length(Team team, const T* x, std::int64_t n) {
  const A squares = team.template sum<A>(n, [=](std::int64_t j) { return A(x[j]) * A(x[j]); });
  return 1 / math::sqrt(squares + A(norm_epsilon));
}

}  // namespace

template <class T>
void delta_split(Stream& stream, const DeltaShape& shape, View<const T, 2> y, const DeltaGates<T>& gates,
                 const DeltaRows& rows, View<acc_t<T>, 2> q, View<acc_t<T>, 2> k, View<acc_t<T>, 2> beta_v,
                 const DeltaTokens<acc_t<T>>& to) {
  note_rows(stream, "delta_split", bytes_in(y), bytes_in(q, k, beta_v, to.beta, to.g));
  using A = acc_t<T>;
  const std::int64_t Dk = shape.key_dim, Dv = shape.value_dim;
  const DeltaColumns columns(shape);
  parallel_rows(stream, q.rows(), [=] FORGE_LAMBDA(std::int64_t row, Team team) {
    const DeltaPlace place(shape, row);
    A *const query = q.row(row), *const key = k.row(row), *const value = beta_v.row(row);
    if (!place.there(shape) || !is_token(rows, place.batch_row(shape))) {
      team.each(Dk, [=](std::int64_t j) { query[j] = key[j] = 0; });
      team.each(Dv, [=](std::int64_t j) { value[j] = 0; });
      if (team.leads()) to.beta[row] = to.g[row] = 0;
      return;
    }
    const std::int64_t r = place.batch_row(shape), key_head = quotient(place.head, columns.shared);
    const T *const of_q = y.row(r) + columns.q + key_head * Dk, *const of_k = y.row(r) + columns.k + key_head * Dk;
    const T* const of_v = y.row(r) + columns.v + place.head * Dv;
    const A q_scale = inverse_length<A>(team, of_q, Dk) / math::sqrt(A(Dk)),
            k_scale = inverse_length<A>(team, of_k, Dk);
    const A beta = math::sigmoid(A(gates.b.row(r)[place.head]));
    team.each(Dk, [=](std::int64_t j) {
      query[j] = A(of_q[j]) * q_scale;
      key[j] = A(of_k[j]) * k_scale;
    });
    team.each(Dv, [=](std::int64_t j) { value[j] = beta * A(of_v[j]); });
    if (!team.leads()) return;
    to.beta[row] = beta;
    to.g[row] = -math::exp(A(gates.log_decay[place.head])) *
                softplus(A(gates.a.row(r)[place.head]) + A(gates.time_bias[place.head]));
  });
}

template <class T>
void delta_join(Stream& stream, const DeltaShape& shape, View<const acc_t<T>, 2> o, View<T, 2> out) {
  note_rows(stream, "delta_join", bytes_in(o), bytes_in(out));
  const std::int64_t n = shape.value_dim;
  parallel_rows(stream, out.rows(), shape.value_heads, row_width<T>(n),
                [=] FORGE_LAMBDA(std::int64_t r, std::int64_t head, Team team) {
                  const acc_t<T>* const from = o.row(delta_row(shape, r, head));
                  T* const to = out.row(r) + head * n;
                  team.each(n, [=](std::int64_t j) { to[j] = T(from[j]); });
                });
}

template <class T>
void delta_cut(Stream& stream, const DeltaShape& shape, View<const T, 2> d_out, View<acc_t<T>, 2> d_o) {
  note_rows(stream, "delta_cut", bytes_in(d_out), bytes_in(d_o));
  using A = acc_t<T>;
  const std::int64_t n = shape.value_dim;
  parallel_rows(stream, d_o.rows(), row_width<A>(n), [=] FORGE_LAMBDA(std::int64_t row, Team team) {
    const DeltaPlace place(shape, row);
    const bool there = place.there(shape);
    const T* const from = d_out.row(there ? place.batch_row(shape) : 0) + place.head * n;
    A* const to = d_o.row(row);
    team.each(n, [=](std::int64_t j) { to[j] = there ? A(from[j]) : A(0); });
  });
}

// λ_i gets q·d(λq) + β k·y_k, times λ_i of c_i; ε_j gets k·d(εk), of which −ε_j times that is of c_j
template <class T>
void delta_combine(Stream& stream, const DeltaShape& shape, const DeltaTokens<acc_t<T>>& of, View<const T, 2> y,
                   View<const acc_t<T>, 2> q, View<const acc_t<T>, 2> k, View<const acc_t<T>, 2> d_begin_q,
                   View<const acc_t<T>, 2> d_end_k, View<const acc_t<T>, 2> y_k, View<const acc_t<T>, 2> y_v,
                   View<acc_t<T>, 2> dq, View<acc_t<T>, 2> dk, const DeltaSlopes<acc_t<T>>& slopes) {
  note_rows(stream, "delta_combine", bytes_in(y, q, k, d_begin_q, d_end_k, y_k, y_v, dq, dk), bytes_in(dq, dk));
  using A = acc_t<T>;
  const std::int64_t Dk = shape.key_dim, Dv = shape.value_dim;
  const DeltaColumns columns(shape);
  parallel_rows(stream, q.rows(), [=] FORGE_LAMBDA(std::int64_t row, Team team) {
    const DeltaPlace place(shape, row);
    const bool there = place.there(shape);
    const T* const value = y.row(there ? place.batch_row(shape) : 0) + columns.v + place.head * Dv;
    const A beta = of.beta[row], begin = of.begin[row], end = of.end[row];
    const A *const query = q.row(row), *const key = k.row(row), *const by_begin = d_begin_q.row(row),
                   *const by_end = d_end_k.row(row), *const by_key = y_k.row(row), *const by_value = y_v.row(row);
    const A of_query = team.template sum<A>(Dk, [=](std::int64_t j) { return query[j] * by_begin[j]; });
    const A of_key = team.template sum<A>(Dk, [=](std::int64_t j) { return key[j] * by_key[j]; });
    const A of_end = end * team.template sum<A>(Dk, [=](std::int64_t j) { return key[j] * by_end[j]; });
    const A of_value =
        team.template sum<A>(Dv, [=](std::int64_t j) { return there ? A(value[j]) * by_value[j] : A(0); });
    A *const to_q = dq.row(row), *const to_k = dk.row(row);
    team.each(Dk, [=](std::int64_t j) {
      to_q[j] += begin * by_begin[j];
      to_k[j] += end * by_end[j] + beta * begin * by_key[j];
    });
    if (!team.leads()) return;
    slopes.beta[row] += of_value + begin * of_key;
    slopes.sum[row] += begin * (of_query + beta * of_key) - of_end;
    slopes.end[row] = of_end;
  });
}

namespace {

// Of a key head, which `shared` value heads have: x → x̂ · scale with x̂ = x s, s = 1 / √(x·x + ε):
// dx = scale s (d − x̂ (x̂·d)), d the sum of the heads' gradients
template <class A, class T, class Slope>
FORGE_INLINE void unit_backward(Team team, const T* x, std::int64_t n, A scale, const Slope& slope, T* dx) {
  const A s = inverse_length<A>(team, x, n);
  const A along = team.template sum<A>(n, [=](std::int64_t j) { return A(x[j]) * s * slope(j); });
  team.each(n, [=](std::int64_t j) { dx[j] = T(scale * s * (slope(j) - A(x[j]) * s * along)); });
}

}  // namespace

template <class T>
void delta_split_backward(Stream& stream, const DeltaShape& shape, View<const T, 2> y, const DeltaGates<T>& gates,
                          const DeltaTokens<acc_t<T>>& of, const DeltaSlopes<acc_t<T>>& slopes,
                          View<const acc_t<T>, 2> dq, View<const acc_t<T>, 2> dk, View<const acc_t<T>, 2> y_v,
                          View<T, 2> d, View<T, 2> db, View<T, 2> da, View<acc_t<T>, 2> d_decay) {
  note_rows(stream, "delta_split_backward", bytes_in(y, dq, dk, y_v), bytes_in(d, db, da, d_decay));
  using A = acc_t<T>;
  const std::int64_t Dk = shape.key_dim, Dv = shape.value_dim, C = shape.chunk();
  const DeltaColumns columns(shape);
  parallel_rows(stream, y.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* const from = y.row(r);
    T* const to = d.row(r);
    for (std::int64_t head = 0; head < shape.key_heads; ++head) {
      const std::int64_t row = delta_row(shape, r, head * columns.shared);
      const auto summed = [=](const View<const A, 2>& x) {
        return [=](std::int64_t j) {
          A sum = 0;
          for (std::int64_t i = 0; i < columns.shared; ++i) sum += x.row(row + i * C)[j];
          return sum;
        };
      };
      const std::int64_t at = head * Dk;
      unit_backward<A>(team, from + columns.q + at, Dk, 1 / math::sqrt(A(Dk)), summed(dq), to + columns.q + at);
      unit_backward<A>(team, from + columns.k + at, Dk, A(1), summed(dk), to + columns.k + at);
    }
    for (std::int64_t head = 0; head < shape.value_heads; ++head) {
      const std::int64_t row = delta_row(shape, r, head);
      const A beta = of.beta[row];
      const A* const by_value = y_v.row(row);
      T* const value = to + columns.v + head * Dv;
      team.each(Dv, [=](std::int64_t j) { value[j] = T(beta * by_value[j]); });
    }
    team.each(shape.value_heads, [=](std::int64_t head) {
      const std::int64_t row = delta_row(shape, r, head);
      const A beta = of.beta[row], slope = slopes.sum[row];
      const A rate = -math::exp(A(gates.log_decay[head])), x = A(gates.a.row(r)[head]) + A(gates.time_bias[head]);
      db.row(r)[head] = T(slopes.beta[row] * beta * (1 - beta));
      da.row(r)[head] = T(slope * rate * (x > A(20) ? A(1) : math::sigmoid(x)));
      d_decay.row(r)[head] = slope * of.g[row];
    });
  });
}

FORGE_INSTANTIATE_FUNCTION(delta_split);
FORGE_INSTANTIATE_FUNCTION(delta_join);
FORGE_INSTANTIATE_FUNCTION(delta_cut);
FORGE_INSTANTIATE_FUNCTION(delta_combine);
FORGE_INSTANTIATE_FUNCTION(delta_split_backward);

}  // namespace forge
