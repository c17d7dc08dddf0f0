#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/gemm/few_rows.hpp"

//   y_ij = Σ_k x_ik W_jk
// A team takes row j of W, which it holds in registers: those of up to 2 KiB a warp, of up to 16 KiB a block; what is
// longer it reads again for each row of x.

namespace forge {

template <class T, class TY>
void few_rows_product(Stream& stream, View<const T, 2> x, View<const T, 2> w, View<TY, 2> y) {
  using A = acc_t<T>;
  const std::int64_t K = w.columns();
  require(x.columns() == K && y.rows() == x.rows() && y.columns() == w.rows(), "few_rows_product: shapes differ");
  parallel_rows(stream, w.rows(), row_width<T>(K), [=] FORGE_LAMBDA(std::int64_t j, Team team) {
    const auto w_j = team.row(K, w.row(j));
    for (std::int64_t i = 0; i < x.rows(); ++i) {
      const A sum = team.template sum<A>(
          K, [](const T& w_jk, const T& x_ik) { return A(w_jk) * A(x_ik); }, w_j, x.row(i));
      if (team.leads()) y.row(i)[j] = TY(sum);
    }
  });
}

bool few_rows_pay(DType) {
  return true;
}

FORGE_INSTANTIATE_FEW_ROWS

}  // namespace forge
