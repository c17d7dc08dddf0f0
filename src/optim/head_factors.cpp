#include "device/parallel.hpp"
#include "kernels/rows/math.hpp"
#include "optim/head_clip.hpp"

namespace forge {

template <class A>
void head_factors(Stream& stream, View<const A, 2> peaks, std::int64_t kv_heads, double most,
                  View<const StepScalars, 1> scalars, View<A, 2> factors) {
  const std::int64_t heads = peaks.columns(), group = heads / kv_heads;
  parallel_for(stream, peaks.rows() * kv_heads, [=] FORGE_LAMBDA(std::int64_t i) {
    const std::int64_t layer = quotient(i, kv_heads), kv = i - layer * kv_heads;
    const A* const peak = peaks.row(layer);
    A* const to = factors.row(layer);
    const bool acts = scalars[0].finite != 0;
    double least = 1;
    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const double gamma = acts && double(peak[h]) > most ? most / double(peak[h]) : 1;
      to[heads + h] = A(gamma);
      least = gamma < least ? gamma : least;
    }
    const double of_key = math::sqrt(least);
    to[2 * heads + kv] = A(of_key);
    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) to[h] = A(double(to[heads + h]) / of_key);
  });
}

template <class T>
void scale_heads(Stream& stream, const ClippedRows& rows, std::int64_t first, std::int64_t columns,
                 View<const acc_t<T>, 1> factors, View<acc_t<T>, 1> weights, View<T, 1> copy,
                 View<acc_t<T>, 1> updates) {
  using A = acc_t<T>;
  const std::int64_t heads = factors.rows() / 3, begin = rows.begin, count = rows.heads * rows.head_rows,
                     head_rows = rows.head_rows, inner = rows.inner;
  const A* const of_inner = factors.data + static_cast<int>(rows.of_inner) * heads;
  const A* const of_outer =
      rows.of_outer == HeadFactor::none ? nullptr : factors.data + static_cast<int>(rows.of_outer) * heads;
  parallel_for(stream, weights.rows(), [=] FORGE_LAMBDA(std::int64_t i) {
    const std::int64_t row = quotient(first + i, columns) - begin;
    if (row < 0 || row >= count) return;
    const std::int64_t head = quotient(row, head_rows);
    const A* const table = row - head * head_rows < inner ? of_inner : of_outer;
    if (!table || table[head] == A(1)) return;
    const A p = weights[i] * table[head];
    if (!updates.empty()) updates[i] += p - weights[i];
    weights[i] = p;
    if (!copy.empty()) copy[i] = T(p);
  });
}

FORGE_INSTANTIATE_ACC_FUNCTION(head_factors);
FORGE_INSTANTIATE_FUNCTION(scale_heads);

}  // namespace forge
