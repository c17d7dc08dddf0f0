#include "device/parallel.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "kernels/rows/assign.hpp"

namespace forge {

namespace {

template <int packs, class T>
void permute_rows_of(Stream& stream, View<const T, 2> x, View<const std::int32_t, 1> order, std::int64_t chosen,
                     View<T, 2> rows) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_kept_rows<packs>(stream, rows.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t p, Team team) {
    T* to = rows.row(p);
    if (order[p] < 0)
      return team.map(
          n, [=](T& out) { out = T(A(0)); }, to);
    const auto row = team.template row<packs>(n, x.row(quotient(order[p], chosen)));
    team.map(
        n, [=](const T& in, T& out) { assign(out, in); }, row, to);
  });
}

}  // namespace

template <class T>
void permute_rows(Stream& stream, View<const T, 2> x, View<const std::int32_t, 1> order, std::int64_t chosen,
                  View<T, 2> rows) {
  note_rows(stream, "permute_rows", bytes_in(rows), bytes_in(rows));
  with_kept_packs<T>(x.columns(), aligned_rows(x, rows),
                     [&](auto packs) { permute_rows_of<packs()>(stream, x, order, chosen, rows); });
}

// y = ((t_0 + t_1) + t_2) + …, in the order of the choices.
template <class T>
void unpermute_rows(Stream& stream, View<const T, 2> rows, View<const std::int32_t, 2> place, std::int64_t first,
                    View<const acc_t<T>, 2> weights, bool add, View<T, 2> y) {
  note_rows(stream, "unpermute_rows", bytes_in(rows) + (add ? bytes_in(y) : 0), bytes_in(y));
  using A = acc_t<T>;
  const std::int64_t n = y.columns(), k = place.columns(), end = first + rows.rows();
  const bool aligned = aligned_rows(rows);
  parallel_rows(stream, y.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const std::int32_t* at = place.row(r);
    const auto lines = column_lines<T>(aligned, [=](std::int64_t c) {
      const T* row = at[c] < first || at[c] >= end ? nullptr : rows.row(at[c] - first);
      return column_line(row, weights.empty() ? A(1) : weights.row(r)[c]);
    });
    const auto term = [=](A weight, const T& x) { return weight * A(x); };
    T* to = y.row(r);
    if (add)
      team.template column_sums<A>(
          n, 0, k, lines, term, [=](const A& sum, T& out) { out = T(A(out) + sum); }, in_place(to));
    else
      team.template column_sums<A>(
          n, 0, k, lines, term, [=](const A& sum, T& out) { out = T(sum); }, to);
  });
}

template <class A>
void permute_weights(Stream& stream, View<const A, 2> weights, View<const std::int32_t, 1> order, View<A, 1> values) {
  note_rows(stream, "permute_weights", bytes_in(values), bytes_in(values));
  const std::int64_t k = weights.columns();
  parallel_for(stream, values.rows(), [=] FORGE_LAMBDA(std::int64_t p) {
    const std::int32_t q = order[p];
    const std::int64_t r = quotient(q < 0 ? 0 : q, k);
    values[p] = q < 0 ? A(0) : weights.row(r)[q - r * k];
  });
}

template <class A>
void unpermute_weights(Stream& stream, View<const A, 1> d_values, View<const std::int32_t, 2> place,
                       View<A, 2> d_weights) {
  note_rows(stream, "unpermute_weights", bytes_in(d_values), bytes_in(d_weights));
  const std::int64_t k = place.columns();
  parallel_for(stream, place.rows() * k, [=] FORGE_LAMBDA(std::int64_t q) {
    const std::int64_t r = quotient(q, k), c = q - r * k;
    const std::int32_t p = place.row(r)[c];
    d_weights.row(r)[c] = p < 0 ? A(0) : d_values[p];
  });
}

FORGE_INSTANTIATE_FUNCTION(permute_rows);
FORGE_INSTANTIATE_FUNCTION(unpermute_rows);
FORGE_INSTANTIATE_ACC_FUNCTION(permute_weights);
FORGE_INSTANTIATE_ACC_FUNCTION(unpermute_weights);

}  // namespace forge
