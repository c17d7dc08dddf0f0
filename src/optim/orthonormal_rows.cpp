#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/math.hpp"
#include "optim/rotation.hpp"

namespace forge {

// Golub & Van Loan, Matrix Computations, algorithm 5.2.1, with a row for each column. Of row x behind its first j
// numbers, v = x + sign(x_j) ‖x‖ e_j, τ = 2 / vᵀv, and R_jj = −sign(x_j) ‖x‖:
//   a_i ← a_i − τ (v a_i) v of rows i > j;  q_c = sign(R_cc) (I − τ_0 v_0 v_0ᵀ) … (I − τ_c v_c v_cᵀ) e_c
// A row of zeros leaves e_j. Sums in double, each by one team in one order.
template <class A>
void orthonormal_rows(Stream& stream, View<A, 2> a, View<A, 2> q, View<double, 1> reflections) {
  const std::int64_t k = a.rows();
  A* const rows = a.data;
  A* const result = q.data;
  double* const taus = reflections.data;
  double* const signs = reflections.data + k;
  for (std::int64_t j = 0; j < k; ++j) {
    A* const v = rows + j * k + j;
    const std::int64_t n = k - j;
    parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
      const double squares = team.template sum<double>(n, [=](std::int64_t i) { return double(v[i]) * double(v[i]); });
      if (!team.leads()) return;
      const double x = double(v[0]), norm = math::sqrt(squares);
      v[0] = A(x < 0 ? x - norm : x + norm);
      const double length = squares - x * x + double(v[0]) * double(v[0]);
      taus[j] = norm > 0 ? 2 / length : 0;
      signs[j] = norm > 0 && x >= 0 ? -1 : 1;
    });
    parallel_rows(stream, n - 1, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
      A* const row = v + (r + 1) * k;
      const double dot = team.template sum<double>(n, [=](std::int64_t i) { return double(v[i]) * double(row[i]); });
      team.each(n, [=](std::int64_t i) { row[i] = A(double(row[i]) - taus[j] * dot * double(v[i])); });
    });
  }
  parallel_rows(stream, k, [=] FORGE_LAMBDA(std::int64_t c, Team team) {
    A* const row = result + c * k;
    team.each(k, [=](std::int64_t i) { row[i] = A(i == c ? signs[c] : 0); });
    for (std::int64_t j = c; j >= 0; --j) {
      const A* const v = rows + j * k;
      const double dot =
          team.template sum<double>(k - j, [=](std::int64_t i) { return double(v[j + i]) * double(row[j + i]); });
      team.each(k - j, [=](std::int64_t i) { row[j + i] = A(double(row[j + i]) - taus[j] * dot * double(v[j + i])); });
    }
  });
}
FORGE_INSTANTIATE_ACC_FUNCTION(orthonormal_rows);

}  // namespace forge
