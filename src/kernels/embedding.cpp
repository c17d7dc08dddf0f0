#include "device/parallel.hpp"
#include "kernels/assign.hpp"
#include "kernels/kernels.hpp"

namespace forge {

template <class T>
void embedding_forward(Stream& stream, View<const std::int32_t, 1> tokens, View<const T, 2> table,
                       View<const std::int32_t, 1> positions, View<const T, 2> positions_table, View<T, 2> out) {
  using A = acc_t<T>;
  const std::int64_t n = out.columns();
  if (positions_table.empty()) {
    parallel_rows(stream, out.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
      T* to = out.row(r);
      if (tokens[r] < 0) return team.each(n, [=](std::int64_t j) { to[j] = T(A(0)); });
      const T* from = table.row(tokens[r]);
      team.each(n, [=](std::int64_t j) { assign(to[j], from[j]); });
    });
    return;
  }
  parallel_rows(stream, out.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* position = positions_table.row(positions[r]);
    T* to = out.row(r);
    if (tokens[r] < 0) return team.each(n, [=](std::int64_t j) { assign(to[j], position[j]); });
    const T* from = table.row(tokens[r]);
    team.each(n, [=](std::int64_t j) { to[j] = T(A(from[j]) + A(position[j])); });
  });
}

// Task k of the sorted order sums the run of equal indices that starts at k; all others leave at once.
template <class T>
void embedding_backward(Stream& stream, View<const std::int32_t, 1> index, View<const std::int32_t, 1> order,
                        View<const T, 2> d_out, View<acc_t<T>, 2> d_table) {
  using A = acc_t<T>;
  const std::int64_t rows = index.rows(), n = d_out.columns();
  parallel_rows(stream, rows, [=] FORGE_LAMBDA(std::int64_t begin, Team team) {
    const std::int32_t target = index[order[begin]];
    if (target < 0 || (begin > 0 && index[order[begin - 1]] == target)) return;
    std::int64_t end = begin + 1;
    while (end < rows && index[order[end]] == target) ++end;
    A* to = d_table.row(target);
    team.template column_sums<A>(
        n, begin, end, [&](std::int64_t k, std::int64_t j) { return A(d_out.row(order[k])[j]); },
        [&](std::int64_t j, A sum) { to[j] += sum; });
  });
}

#define FORGE_EMBEDDING(T)                                                                               \
  template void embedding_forward<T>(Stream&, View<const std::int32_t, 1>, View<const T, 2>,             \
                                     View<const std::int32_t, 1>, View<const T, 2>, View<T, 2>);         \
  template void embedding_backward<T>(Stream&, View<const std::int32_t, 1>, View<const std::int32_t, 1>, \
                                      View<const T, 2>, View<acc_t<T>, 2>);
FORGE_COMPUTE_TYPES(FORGE_EMBEDDING)

}  // namespace forge
