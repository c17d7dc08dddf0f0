#include "device/parallel.hpp"
#include "kernels/column_sums.hpp"
#include "kernels/kernels.hpp"
#include "kernels/largest.hpp"
#include "kernels/math.hpp"

namespace forge {

namespace {

// rstd of one vector of n values.
template <class A, class Row>
FORGE_INLINE A inverse_rms(Team team, std::int64_t n, A epsilon, const Row& x) {
  const A squares = team.template sum<A>(
      n, [=](const auto& x_j) { return A(x_j) * A(x_j); }, x);
  return A(1) / math::sqrt(squares / A(n) + epsilon);
}

// y = w ⊙ x · rstd of one vector of n values; returns rstd.
template <class A, class T, class Row>
FORGE_INLINE A normalise(Team team, std::int64_t n, A epsilon, const Row& x, const T* w, T* y, float* amax = nullptr) {
  const A rstd = inverse_rms<A>(team, n, epsilon, x);
  map_and_measure(
      team, n, amax,
      [=](const T& w_j, const T& x_j, T& y_j) {
        y_j = T(A(w_j) * (A(x_j) * rstd));
        return magnitude(y_j);
      },
      w, x, y);
  return rstd;
}

// With x̂ = x · rstd and g = w ⊙ dy:  dx = rstd · (g − x̂ · mean(g ⊙ x̂)) + residual (null: zero); sums += dy ⊙ x̂, if
// there are any.
template <class A, class T, class... S>
FORGE_INLINE void normalise_backward(Team team, std::int64_t n, A rstd, const T* d, const T* in, const T* w,
                                     const T* residual, T* dx, const S&... sums) {
  const auto dy = team.row(n, d), x = team.row(n, in);
  const A dot = team.template sum<A>(
      n, [=](const T& dy_j, const T& w_j, const T& x_j) { return A(dy_j) * A(w_j) * A(x_j); }, dy, w, x);
  const A slope = dot * rstd * rstd / A(n);
  if (residual)
    team.map(
        n,
        [=](const T& extra, const T& dy_j, const T& w_j, const T& x_j, T& dx_j, auto&... sum) {
          ((sum += A(dy_j) * (A(x_j) * rstd)), ...);
          dx_j = T(A(extra) + rstd * (A(dy_j) * A(w_j) - A(x_j) * slope));
        },
        residual, dy, w, x, dx, sums...);
  else
    team.map(
        n,
        [=](const T& dy_j, const T& w_j, const T& x_j, T& dx_j, auto&... sum) {
          ((sum += A(dy_j) * (A(x_j) * rstd)), ...);
          dx_j = T(rstd * (A(dy_j) * A(w_j) - A(x_j) * slope));
        },
        dy, w, x, dx, sums...);
}

// Of a head in the gradient of w: dy · x · rstd.
template <class A>
struct WeightTerm {
  template <class T>
  FORGE_INLINE A operator()(A rstd, const T& dy, const T& x) const {
    return A(dy) * (A(x) * rstd);
  }
};

}  // namespace

template <class T>
void rmsnorm_forward(Stream& stream, View<const T, 2> x, View<const T, 1> w, double epsilon, View<T, 2> y,
                     View<acc_t<T>, 1> rstd, View<float, 1> amax) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A scale = normalise<A>(team, n, A(epsilon), team.row(n, x.row(r)), w.data, y.row(r), of_row(amax, r));
    if (team.leads()) rstd[r] = scale;
  });
}

// h = T(residual + x), y = w ⊙ h · rstd of h. What is added is rounded before it is normalised, as it will be read
// again.
template <class T>
void residual_rmsnorm_forward(Stream& stream, View<const T, 2> residual, View<const T, 2> x, View<const T, 1> w,
                              double epsilon, View<T, 2> h, View<T, 2> y, View<acc_t<T>, 1> rstd, View<float, 1> amax) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const auto sum = team.made(
        n, [=](const T& p, const T& q) { return T(A(p) + A(q)); }, h.row(r), residual.row(r), x.row(r));
    const A scale = normalise<A>(team, n, A(epsilon), sum, w.data, y.row(r), of_row(amax, r));
    if (team.leads()) rstd[r] = scale;
  });
}

// One walk through the rows of each chunk, which have dx and the chunk's part of dw.
template <class T>
void rmsnorm_backward(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const T, 1> w,
                      View<const acc_t<T>, 1> rstd, View<const T, 2> residual, View<T, 2> dx, View<acc_t<T>, 2> partial,
                      View<acc_t<T>, 1> dw) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  const RowChunks chunks = norm_backward_rows(x.rows());
  parallel_rows(stream, chunks.count, row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t c, Team team) {
    const auto sums = team.template sums<A, T>(n, partial.row(c));
    for (std::int64_t r = chunks.begin(c), end = chunks.begin(c + 1); r < end; ++r) {
      const T* extra = residual.empty() ? nullptr : residual.row(r);
      normalise_backward<A>(team, n, rstd[r], dy.row(r), x.row(r), w.data, extra, dx.row(r), sums);
    }
    team.store(n, sums);
  });
  add_partial_sums<A>(stream, partial.slice(0, chunks.count), dw);
}

// n = w ⊙ x · rstd of each head, rounded as a norm of its own would be; then, of its last 2h entries,
// y = (n1 cos − n2 sin, n2 cos + n1 sin). A head is read once from memory: the second time the caches have it.
template <class T>
void head_norm_forward(Stream& stream, View<const T, 3> x, const HeadWeights<T>& w, double epsilon,
                       View<const std::int32_t, 1> positions, View<const acc_t<T>, 2> cosine,
                       View<const acc_t<T>, 2> sine, View<T, 3> y, View<acc_t<T>, 2> rstd) {
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2), h = cosine.columns(), whole = n - 2 * h;
  require(whole >= 0, "head_norm_forward: more angles than pairs of a head");
  parallel_rows(
      stream, x.rows(), heads, row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, std::int64_t head, Team team) {
        const T *in = x.row(r) + head * n, *weight = w.of(head);
        T* out = y.row(r) + head * n;
        if (h == 0) {
          const A scale = normalise<A>(team, n, A(epsilon), team.row(n, in), weight, out);
          if (team.leads()) rstd.row(r)[head] = scale;
          return;
        }
        const A scale = inverse_rms<A>(team, n, A(epsilon), team.row(n, in));
        const auto norm = [=](const T& w_j, const T& x_j) { return T(A(w_j) * (A(x_j) * scale)); };
        team.map(
            whole, [=](const T& w_j, const T& x_j, T& y_j) { y_j = norm(w_j, x_j); }, weight, in, out);
        const T *w1 = weight + whole, *x1 = in + whole;
        team.map(
            h,
            [=](const T& w_low, const T& w_high, const T& x_low, const T& x_high, const A& cos, const A& sin, T& low,
                T& high) {
              const A a = A(norm(w_low, x_low)), b = A(norm(w_high, x_high));
              low = T(a * cos - b * sin);
              high = T(b * cos + a * sin);
            },
            w1, w1 + h, x1, x1 + h, cosine.row(positions[r]), sine.row(positions[r]), out + whole, out + whole + h);
        if (team.leads()) rstd.row(r)[head] = scale;
      });
}

template <class T>
void head_norm_backward(Stream& stream, View<const T, 3> dy, View<const T, 3> x, const HeadWeights<T>& w,
                        View<const acc_t<T>, 2> rstd, View<T, 3> dx) {
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2);
  parallel_rows(stream, x.rows(), heads, row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, std::int64_t h, Team team) {
    const T* none = nullptr;
    normalise_backward<A>(team, n, rstd.row(r)[h], dy.row(r) + h * n, x.row(r) + h * n, w.of(h), none,
                          dx.row(r) + h * n);
  });
}

template <class T>
void head_norm_weight_gradient(Stream& stream, View<const T, 3> dy, View<const T, 3> x, View<const acc_t<T>, 2> rstd,
                               View<acc_t<T>, 2> partial, View<acc_t<T>, 1> dw) {
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2);
  const bool aligned = aligned_rows(dy) && aligned_rows(x) && n * sizeof(T) % 16 == 0;
  add_column_sums<A, T>(
      stream, x.rows(), heads, aligned, partial, dw,
      [=] FORGE_LAMBDA(std::int64_t q, std::int64_t first) {
        const std::int64_t r = quotient(q, heads), h = q - r * heads, at = h * n + first;
        return column_line(dy.row(r) + at, x.row(r) + at, rstd.row(r)[h]);
      },
      WeightTerm<A>{});
}

#define FORGE_RMSNORM(T)                                                                                               \
  template void rmsnorm_forward<T>(Stream&, View<const T, 2>, View<const T, 1>, double, View<T, 2>, View<acc_t<T>, 1>, \
                                   View<float, 1>);                                                                    \
  template void residual_rmsnorm_forward<T>(Stream&, View<const T, 2>, View<const T, 2>, View<const T, 1>, double,     \
                                            View<T, 2>, View<T, 2>, View<acc_t<T>, 1>, View<float, 1>);                \
  template void rmsnorm_backward<T>(Stream&, View<const T, 2>, View<const T, 2>, View<const T, 1>,                     \
                                    View<const acc_t<T>, 1>, View<const T, 2>, View<T, 2>, View<acc_t<T>, 2>,          \
                                    View<acc_t<T>, 1>);                                                                \
  template void head_norm_forward<T>(Stream&, View<const T, 3>, const HeadWeights<T>&, double,                         \
                                     View<const std::int32_t, 1>, View<const acc_t<T>, 2>, View<const acc_t<T>, 2>,    \
                                     View<T, 3>, View<acc_t<T>, 2>);                                                   \
  template void head_norm_backward<T>(Stream&, View<const T, 3>, View<const T, 3>, const HeadWeights<T>&,              \
                                      View<const acc_t<T>, 2>, View<T, 3>);                                            \
  template void head_norm_weight_gradient<T>(Stream&, View<const T, 3>, View<const T, 3>, View<const acc_t<T>, 2>,     \
                                             View<acc_t<T>, 2>, View<acc_t<T>, 1>);
FORGE_COMPUTE_TYPES(FORGE_RMSNORM)

}  // namespace forge
