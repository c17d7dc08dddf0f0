#include "device/parallel.hpp"
#include "device/rows_ahead.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/column_sums.hpp"
#include "kernels/rows/largest.hpp"
#include "kernels/rows/rms_terms.hpp"

namespace forge {

namespace {

// y = w ⊙ x · rstd of one vector of n values; returns rstd.
template <class A, class T, class Row>
FORGE_INLINE A normalise(Team team, std::int64_t n, A epsilon, const Row& x, const T* w, T* y, const RowAmaxes& amax,
                         std::int64_t r) {
  const A rstd = inverse_rms<A>(team, n, epsilon, x);
  map_and_measure(
      team, n, amax, r,
      [=](const T& w_j, const T& x_j, T& y_j) {
        y_j = T(A(w_j) * (A(x_j) * rstd));
        return magnitude(y_j);
      },
      w, x, y);
  return rstd;
}

template <int packs, class T, class A>
void rmsnorm_forward_of(Stream& stream, View<const T, 2> x, View<const T, 1> w, A epsilon, View<T, 2> y,
                        View<A, 1> rstd, const RowAmaxes& amax) {
  const std::int64_t n = x.columns();
  parallel_kept_rows<packs>(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const auto row = team.template row<packs>(n, x.row(r));
    const A scale = normalise<A>(team, n, epsilon, row, w.data, y.row(r), amax, r);
    if (team.leads()) rstd[r] = scale;
  });
}

// What is added is rounded before it is normalised, as it will be read again.
template <int packs, class T, class A>
void residual_rmsnorm_forward_of(Stream& stream, View<const T, 2> residual, View<const T, 2> x, View<const T, 1> w,
                                 A epsilon, View<T, 2> h, View<T, 2> y, View<A, 1> rstd, const RowAmaxes& amax) {
  const std::int64_t n = x.columns();
  parallel_kept_rows<packs>(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const auto p = team.template row<packs>(n, residual.row(r)), q = team.template row<packs>(n, x.row(r));
    const auto sum = team.template made<packs>(
        n, [=](const T& p_j, const T& q_j) { return T(A(p_j) + A(q_j)); }, h.row(r), p, q);
    const A scale = normalise<A>(team, n, epsilon, sum, w.data, y.row(r), amax, r);
    if (team.leads()) rstd[r] = scale;
  });
}

}  // namespace

template <class T>
void rmsnorm_forward(Stream& stream, View<const T, 2> x, View<const T, 1> w, double epsilon, View<T, 2> y,
                     View<acc_t<T>, 1> rstd, const RowAmaxes& amax) {
  note_rows(stream, "norm_forward", bytes_in(x), bytes_in(y));
  with_kept_packs<T>(x.columns(), aligned_rows(x, w, y), [&](auto packs) {
    rmsnorm_forward_of<packs()>(stream, x, w, static_cast<acc_t<T>>(epsilon), y, rstd, amax);
  });
}

// h = T(residual + x), y = w ⊙ h · rstd of h.
template <class T>
void residual_rmsnorm_forward(Stream& stream, View<const T, 2> residual, View<const T, 2> x, View<const T, 1> w,
                              double epsilon, View<T, 2> h, View<T, 2> y, View<acc_t<T>, 1> rstd,
                              const RowAmaxes& amax) {
  note_rows(stream, "residual_norm_forward", bytes_in(residual, x), bytes_in(h, y));
  with_kept_packs<T>(x.columns(), aligned_rows(residual, x, w, h, y), [&](auto packs) {
    residual_rmsnorm_forward_of<packs()>(stream, residual, x, w, static_cast<acc_t<T>>(epsilon), h, y, rstd, amax);
  });
}

namespace {

// One walk through the rows of each chunk, which have dx and the chunk's part of dw.
template <int packs, class T, class A>
void rmsnorm_backward_of(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const T, 1> w,
                         View<const A, 1> rstd, View<const T, 2> residual, View<T, 2> dx, View<A, 2> partial,
                         const RowChunks& chunks) {
  const std::int64_t n = x.columns();
  const bool adds = !residual.empty();
  parallel_rows_ahead<T, 3, packs, 1>(stream, chunks.count, n, [=] FORGE_LAMBDA(std::int64_t c, Team team) {
    const auto sums = team.template sums<A, T, packs>(n, partial.row(c));
    const std::int64_t begin = chunks.begin(c), end = chunks.begin(c + 1);
    const auto weight = row_beside<packs>(team, n, w.data);
    const auto ahead = rows_ahead<T, 3, packs>(team, n, begin, end, [=](std::int64_t r) {
      return Array<const T*, 3>{{dy.row(r), x.row(r), adds ? residual.row(r) : nullptr}};
    });
    for (std::int64_t r = begin; r < end; ++r) {
      const auto rows = ahead.at(r);
      const A scale = rstd[r], dot = team.template sum<A>(n, SlopeTerm<A>{}, rows[0], weight, rows[1]);
      normalise_backward(team, n, scale, dot, rows[0], rows[1], weight, adds, rows[2], dx.row(r), sums);
    }
    team.store(n, sums);
  });
}

}  // namespace

template <class T>
void rmsnorm_backward(Stream& stream, View<const T, 2> dy, View<const T, 2> x, View<const T, 1> w,
                      View<const acc_t<T>, 1> rstd, View<const T, 2> residual, View<T, 2> dx, View<acc_t<T>, 2> partial,
                      View<acc_t<T>, 1> dw) {
  note_rows(stream, "norm_backward", bytes_in(dy, x, residual), bytes_in(dx));
  const RowChunks chunks = norm_backward_rows(x.rows());
  with_packs<T>(x.columns(), aligned_rows(dy, x, w, residual, dx, partial), [&](auto packs) {
    rmsnorm_backward_of<packs()>(stream, dy, x, w, rstd, residual, dx, partial, chunks);
  });
  add_partial_sums<acc_t<T>>(stream, partial.slice(0, chunks.count), dw);
}

FORGE_INSTANTIATE_FUNCTION(rmsnorm_forward);
FORGE_INSTANTIATE_FUNCTION(residual_rmsnorm_forward);
FORGE_INSTANTIATE_FUNCTION(rmsnorm_backward);

}  // namespace forge
