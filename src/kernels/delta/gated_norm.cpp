#include "device/parallel.hpp"
#include "kernels/delta/delta.hpp"
#include "kernels/rows/column_sums.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

namespace {

template <class A, class T>
FORGE_INLINE A inverse_root(Team team, const T* x, std::int64_t n, A epsilon) {
  const A squares = team.template sum<A>(n, [=](std::int64_t j) { return A(x[j]) * A(x[j]); });
  return 1 / math::sqrt(squares / A(n) + epsilon);
}

}  // namespace

template <class T>
void gated_norm_forward(Stream& stream, View<const T, 2> x, View<const T, 2> z, View<const T, 1> w, double epsilon,
                        View<T, 2> y) {
  note_rows(stream, "gated_norm_forward", bytes_in(x, z), bytes_in(y));
  using A = acc_t<T>;
  const std::int64_t n = w.rows(), heads = x.columns() / n;
  parallel_rows(stream, x.rows(), heads, row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, std::int64_t h, Team team) {
    const T *const in = x.row(r) + h * n, *const gate = z.row(r) + h * n;
    T* const out = y.row(r) + h * n;
    const A scale = inverse_root(team, in, n, A(epsilon));
    team.each(n, [=](std::int64_t j) {
      const A g = A(gate[j]);
      out[j] = T(A(w[j]) * (A(in[j]) * scale) * (g * math::sigmoid(g)));
    });
  });
}

// With x̂ = x s, s = 1 / √(mean x² + ε), and t = dy ⊙ silu(z): dw = Σ t ⊙ x̂, dx = s (w t − x̂ mean(w t x̂)),
// dz = dy ⊙ w x̂ ⊙ silu'(z)
template <class T>
void gated_norm_backward(Stream& stream, View<const T, 2> x, View<const T, 2> z, View<const T, 1> w, double epsilon,
                         View<T, 2> dy, View<T, 2> dz, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> dw) {
  note_rows(stream, "gated_norm_backward", 2 * bytes_in(x, z, dy), bytes_in(dy, dz));
  using A = acc_t<T>;
  const std::int64_t n = w.rows(), heads = x.columns() / n, rows = x.rows();
  if (!dw.empty()) {
    const View<A, 2> sums = partial.slice(0, norm_partial_rows(rows));
    const std::int64_t parts = sums.rows();
    parallel_rows(stream, parts, [=] FORGE_LAMBDA(std::int64_t part, Team team) {
      A* const sum = sums.row(part);
      team.each(n, [=](std::int64_t j) { sum[j] = 0; });
      for (std::int64_t r = quotient(rows * part, parts), end = quotient(rows * (part + 1), parts); r < end; ++r)
        for (std::int64_t h = 0; h < heads; ++h) {
          const T *const in = x.row(r) + h * n, *const gate = z.row(r) + h * n, *const slope = dy.row(r) + h * n;
          const A scale = inverse_root(team, in, n, A(epsilon));
          team.each(n, [=](std::int64_t j) {
            const A g = A(gate[j]);
            sum[j] += A(slope[j]) * (g * math::sigmoid(g)) * (A(in[j]) * scale);
          });
        }
    });
    add_partial_sums(stream, sums, dw);
  }
  parallel_rows(stream, rows, heads, row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, std::int64_t h, Team team) {
    const T *const in = x.row(r) + h * n, *const gate = z.row(r) + h * n;
    T *const slope = dy.row(r) + h * n, *const of_gate = dz.row(r) + h * n;
    const A scale = inverse_root(team, in, n, A(epsilon));
    const A mean = team.template sum<A>(n, [=](std::int64_t j) {
      const A g = A(gate[j]);
      return A(w[j]) * A(slope[j]) * (g * math::sigmoid(g)) * (A(in[j]) * scale);
    }) / A(n);
    team.each(n, [=](std::int64_t j) {
      const A g = A(gate[j]), s = math::sigmoid(g), d = A(slope[j]), unit = A(in[j]) * scale;
      of_gate[j] = T(d * A(w[j]) * unit * s * (1 + g * (1 - s)));
      slope[j] = T(scale * (A(w[j]) * d * (g * s) - unit * mean));
    });
  });
}

FORGE_INSTANTIATE_FUNCTION(gated_norm_forward);
FORGE_INSTANTIATE_FUNCTION(gated_norm_backward);

}  // namespace forge
