#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/assign.hpp"

namespace forge {

template <class T>
void embedding_forward(Stream& stream, View<const std::int32_t, 1> tokens, View<const T, 2> table,
                       View<const std::int32_t, 1> positions, View<const T, 2> positions_table, View<T, 2> out,
                       double scale) {
  note_rows(stream, "embedding_forward", (positions_table.empty() ? 1 : 2) * bytes_in(out), bytes_in(out));
  using A = acc_t<T>;
  const std::int64_t n = out.columns();
  const A by = A(T(static_cast<A>(scale)));  // as transformers has it
  if (positions_table.empty()) {
    parallel_rows(stream, out.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
      T* to = out.row(r);
      if (tokens[r] < 0)
        return team.map(
            n, [=](T& to_j) { to_j = T(A(0)); }, to);
      if (by == A(1))
        return team.map(
            n, [=](const T& from, T& to_j) { assign(to_j, from); }, table.row(tokens[r]), to);
      team.map(
          n, [=](const T& from, T& to_j) { to_j = T(by * A(from)); }, table.row(tokens[r]), to);
    });
    return;
  }
  parallel_rows(stream, out.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* position = positions_table.row(positions[r]);
    T* to = out.row(r);
    if (tokens[r] < 0)
      return team.map(
          n, [=](const T& from, T& to_j) { assign(to_j, from); }, position, to);
    team.map(
        n, [=](const T& from, const T& at, T& to_j) { to_j = T(by * A(from) + A(at)); }, table.row(tokens[r]), position,
        to);
  });
}

// Task k of the sorted order sums the run of equal indices that starts at k; all others leave at once.
template <class T>
void embedding_backward(Stream& stream, View<const std::int32_t, 1> index, View<const std::int32_t, 1> order,
                        View<const T, 2> d_out, View<acc_t<T>, 2> d_table, double scale) {
  using A = acc_t<T>;
  const std::int64_t rows = index.rows(), n = d_out.columns();
  const A by = A(T(static_cast<A>(scale)));  // as transformers has it
  const bool aligned = aligned_rows(d_out);
  const std::int64_t sums = rows * n * static_cast<std::int64_t>(sizeof(A));  // if no two are of one row
  note_rows(stream, "embedding_backward", bytes_in(d_out) + sums, sums);
  parallel_rows(stream, rows, row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t begin, Team team) {
    const std::int32_t target = index[order[begin]];
    if (target < 0 || (begin > 0 && index[order[begin - 1]] == target)) return;
    std::int64_t end = begin + 1;
    while (end < rows && index[order[end]] == target) ++end;
    team.template column_sums<A>(
        n, begin, end, column_lines<T>(aligned, [=](std::int64_t k) { return column_line(d_out.row(order[k])); }),
        [=](NoScale, const T& x) { return A(x); }, [=](const A& sum, A& to) { to += by * sum; },
        in_place(d_table.row(target)));
  });
}

FORGE_INSTANTIATE_FUNCTION(embedding_forward);
FORGE_INSTANTIATE_FUNCTION(embedding_backward);

}  // namespace forge
