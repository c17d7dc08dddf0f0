#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/gemm/few_rows.hpp"
#include "kernels/gemm/gemm_matmul.hpp"

//   y_ij = Σ_k x_ik W_jk
// A thread takes four rows j of W at a time: their sums don't wait for each other, and stay in the first-level cache
// for the next row of x.

namespace forge {

namespace {

constexpr std::int64_t at_once = 4;

template <class T, class TY>
FORGE_INLINE void four_rows(View<const T, 2> x, View<const T, 2> w, View<TY, 2> y, std::int64_t j) {
  using A = acc_t<T>;
  const T *w0 = w.row(j), *w1 = w.row(j + 1), *w2 = w.row(j + 2), *w3 = w.row(j + 3);
  for (std::int64_t i = 0; i < x.rows(); ++i) {
    const T* const x_i = x.row(i);
    A s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (std::int64_t k = 0; k < w.columns(); ++k) {
      const A x_ik = A(x_i[k]);
      s0 += x_ik * A(w0[k]);
      s1 += x_ik * A(w1[k]);
      s2 += x_ik * A(w2[k]);
      s3 += x_ik * A(w3[k]);
    }
    TY* const to = y.row(i) + j;
    to[0] = TY(s0);
    to[1] = TY(s1);
    to[2] = TY(s2);
    to[3] = TY(s3);
  }
}

template <class T, class TY>
FORGE_INLINE void one_row(Team team, View<const T, 2> x, View<const T, 2> w, View<TY, 2> y, std::int64_t j) {
  using A = acc_t<T>;
  for (std::int64_t i = 0; i < x.rows(); ++i)
    y.row(i)[j] = TY(team.template sum<A>(
        w.columns(), [](T w_jk, T x_ik) { return A(w_jk) * A(x_ik); }, w.row(j), x.row(i)));
}

}  // namespace

template <class T, class TY>
void few_rows_product(Stream& stream, View<const T, 2> x, View<const T, 2> w, View<TY, 2> y) {
  const std::int64_t N = w.rows();
  require(x.columns() == w.columns() && y.rows() == x.rows() && y.columns() == N, "few_rows_product: shapes differ");
  parallel_rows(stream, (N + at_once - 1) / at_once, [=](std::int64_t group, Team team) {
    std::int64_t j = group * at_once;
    if (j + at_once <= N) return four_rows(x, w, y, j);
    for (; j < N; ++j) one_row(team, x, w, y, j);
  });
}

bool few_rows_pay(DType weights) {
  return weights == DType::bf16 && !Bf16Matmul::has_tiles();
}

FORGE_INSTANTIATE_FEW_ROWS

}  // namespace forge
