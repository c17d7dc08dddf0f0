#include <cmath>

#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/math.hpp"
#include "optim/rule.hpp"

namespace forge {

// NorMuon (Li et al. 2025, arXiv 2510.05491, algorithm 1): Muon's orthogonal matrices (B, m, n), each row by the root
// of its second moment, and as long as AdamW's updates,
//   v ← β2 v + (1−β2) mean over columns of o²;  ô = o / (√v + ε);  o ← 0.2 √(m n) ô / ‖ô‖
// second_moments v: (B m). Memory: row_squares of rows, norms of matrices. Where a matrix is zero its update is, too; a
// step that is not finite changes nothing.
template <class T>
void normuon_rows(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, View<T, 3> o,
                  View<acc_t<T>, 1> second_moments, View<double, 1> row_squares, View<double, 1> norms) {
  using A = acc_t<T>;
  const std::int64_t m = o.extent(1), n = o.extent(2);
  const double length = 0.2 * std::sqrt(static_cast<double>(m) * static_cast<double>(n));
  const double beta2 = deck.beta2, epsilon = deck.epsilon;
  const View<const StepScalars, 1> scalars = step.scalars;
  T* const data = o.data;
  parallel_rows(stream, o.extent(0) * m, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    if (scalars[0].finite == 0) return;
    const T* row = data + r * n;
    const double sum =
        team.template sum<double>(n, [=](std::int64_t j) { return double(A(row[j])) * double(A(row[j])); });
    if (!team.leads()) return;
    const A v = A(beta2 * double(second_moments[r]) + (1 - beta2) * (sum / double(n)));
    second_moments[r] = v;
    const double root = math::sqrt(double(v)) + epsilon;
    row_squares[r] = sum / (root * root);
  });
  parallel_rows(stream, o.extent(0), [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    if (scalars[0].finite == 0) return;
    const double* squares = row_squares.data + b * m;
    const double norm = math::sqrt(team.template sum<double>(m, [=](std::int64_t r) { return squares[r]; }));
    if (team.leads()) norms[b] = norm > 0 ? length / norm : 0;
  });
  parallel_rows(stream, o.extent(0) * m, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    if (scalars[0].finite == 0) return;
    T* row = data + r * n;
    const A factor = A(norms[r / m] / (math::sqrt(double(second_moments[r])) + epsilon));
    team.each(n, [=](std::int64_t j) { row[j] = T(A(row[j]) * factor); });
  });
}

FORGE_INSTANTIATE_FUNCTION(normuon_rows);

}  // namespace forge
