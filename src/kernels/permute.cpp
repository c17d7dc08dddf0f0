#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/assign.hpp"
#include "kernels/moe.hpp"

namespace forge {

template <class T>
void permute_rows(Stream& stream, View<const T, 2> x, View<const std::int32_t, 1> order, std::int64_t chosen,
                  View<T, 2> rows) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, rows.rows(), [=] FORGE_LAMBDA(std::int64_t p, Team team) {
    T* to = rows.row(p);
    if (order[p] < 0) return team.each(n, [=](std::int64_t j) { to[j] = T(A(0)); });
    const T* from = x.row(order[p] / chosen);
    team.each(n, [=](std::int64_t j) { assign(to[j], from[j]); });
  });
}

// y = ((t_0 + t_1) + t_2) + …, in the order of the choices.
template <class T>
void unpermute_rows(Stream& stream, View<const T, 2> rows, View<const std::int32_t, 2> place, std::int64_t first,
                    View<const acc_t<T>, 2> weights, bool add, View<T, 2> y) {
  using A = acc_t<T>;
  constexpr std::int64_t most = 64;
  const std::int64_t n = y.columns(), k = place.columns(), end = first + rows.rows();
  require(k <= most, "unpermute_rows: more than 64 experts of a row");
  parallel_rows(stream, y.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const std::int32_t* at = place.row(r);
    T* to = y.row(r);
    const T* from[most];
    A weight[most];
    std::int64_t terms = 0;
    for (std::int64_t c = 0; c < k; ++c) {
      if (at[c] < first || at[c] >= end) continue;
      from[terms] = rows.row(at[c] - first);
      weight[terms++] = weights.empty() ? A(1) : weights.row(r)[c];
    }
    team.template column_sums<A>(
        n, 0, terms, [&](std::int64_t c, std::int64_t j) { return weight[c] * A(from[c][j]); },
        [&](std::int64_t j, A sum) { to[j] = T(add ? A(to[j]) + sum : sum); });
  });
}

template <class A>
void permute_weights(Stream& stream, View<const A, 2> weights, View<const std::int32_t, 1> order, View<A, 1> values) {
  const std::int64_t k = weights.columns();
  parallel_for(stream, values.rows(), [=] FORGE_LAMBDA(std::int64_t p) {
    const std::int32_t q = order[p];
    values[p] = q < 0 ? A(0) : weights.row(q / k)[q % k];
  });
}

template <class A>
void unpermute_weights(Stream& stream, View<const A, 1> d_values, View<const std::int32_t, 2> place,
                       View<A, 2> d_weights) {
  const std::int64_t k = place.columns();
  parallel_for(stream, place.rows() * k, [=] FORGE_LAMBDA(std::int64_t q) {
    const std::int32_t p = place.row(q / k)[q % k];
    d_weights.row(q / k)[q % k] = p < 0 ? A(0) : d_values[p];
  });
}

#define FORGE_PERMUTE(T)                                                                                           \
  template void permute_rows<T>(Stream&, View<const T, 2>, View<const std::int32_t, 1>, std::int64_t, View<T, 2>); \
  template void unpermute_rows<T>(Stream&, View<const T, 2>, View<const std::int32_t, 2>, std::int64_t,            \
                                  View<const acc_t<T>, 2>, bool, View<T, 2>);
FORGE_COMPUTE_TYPES(FORGE_PERMUTE)
#undef FORGE_PERMUTE
#define FORGE_PERMUTE_WEIGHTS(A)                                                                        \
  template void permute_weights<A>(Stream&, View<const A, 2>, View<const std::int32_t, 1>, View<A, 1>); \
  template void unpermute_weights<A>(Stream&, View<const A, 1>, View<const std::int32_t, 2>, View<A, 2>);
FORGE_PERMUTE_WEIGHTS(double)
FORGE_PERMUTE_WEIGHTS(float)
#undef FORGE_PERMUTE_WEIGHTS

}  // namespace forge
