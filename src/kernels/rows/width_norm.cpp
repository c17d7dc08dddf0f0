#include "kernels/rows/width_norm.hpp"

#include "device/parallel.hpp"
#include "kernels/rows/column_sums.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

namespace {

// Where the columns of queries, 0, and of keys, 1, begin in a row, and how many they are.
struct WidthPart {
  std::int64_t first, count;
};
FORGE_INLINE WidthPart width_part(std::int64_t part, std::int64_t heads, std::int64_t query_heads, std::int64_t n) {
  return part == 0 ? WidthPart{0, query_heads * n} : WidthPart{query_heads * n, (heads - query_heads) * n};
}

// The weights of a head's columns.
template <class T>
FORGE_INLINE const T* width_weights(const HeadWeights<T>& w, std::int64_t head, std::int64_t n) {
  return head < w.query_heads ? w.queries.data + head * n : w.keys.data + (head - w.query_heads) * n;
}

}  // namespace

template <class T>
void width_squares(Stream& stream, View<const T, 3> x, std::int64_t query_heads, bool keys, View<acc_t<T>, 2> sums) {
  note_rows(stream, "width_squares", bytes_in(x), 0);
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2);
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t part, Team team) {
    const WidthPart p = width_part(part, heads, query_heads, n);
    const T* in = x.row(r) + p.first;
    const A sum =
        team.template sum<A>(part == 0 || keys ? p.count : 0, [=](std::int64_t j) { return A(in[j]) * A(in[j]); });
    if (team.leads()) sums.row(r)[part] = sum;
  };
  parallel_rows(stream, x.rows(), 2, row_width<T>(query_heads * n), body);
}

template <class T>
void width_rstd(Stream& stream, std::int64_t queries, std::int64_t keys, double epsilon, View<acc_t<T>, 2> sums) {
  note_rows(stream, "width_rstd", bytes_in(sums), bytes_in(sums));
  using A = acc_t<T>;
  const A add = A(epsilon), of_queries = A(queries), of_keys = A(keys);
  parallel_rows(stream, sums.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    A* const row = sums.row(r);
    team.each(2, [=](std::int64_t i) { row[i] = A(1) / math::sqrt(row[i] / (i == 0 ? of_queries : of_keys) + add); });
  });
}

template <class T>
void width_norm_forward(Stream& stream, View<const T, 3> x, const HeadWeights<T>& w, View<const acc_t<T>, 2> rstd,
                        View<T, 3> y) {
  note_rows(stream, "width_norm_forward", bytes_in(x), bytes_in(y));
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2);
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t head, Team team) {
    const A scale = rstd.row(r)[head < w.query_heads ? 0 : 1];
    const T *in = x.row(r) + head * n, *weight = width_weights(w, head, n);
    T* out = y.row(r) + head * n;
    team.map(
        n, [=](const T& w_j, const T& x_j, T& y_j) { y_j = T(A(w_j) * (A(x_j) * scale)); }, weight, in, out);
  };
  parallel_rows(stream, x.rows(), heads, row_width<T>(n), body);
}

template <class T>
void width_slopes(Stream& stream, View<const T, 3> d, View<const T, 3> x, const HeadWeights<T>& w,
                  View<acc_t<T>, 2> sums) {
  note_rows(stream, "width_slopes", bytes_in(d, x), 0);
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2);
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t part, Team team) {
    const WidthPart p = width_part(part, heads, w.query_heads, n);
    const T *in = x.row(r) + p.first, *slope = d.row(r) + p.first;
    const T* weight = part == 0 ? w.queries.data : w.keys.data;
    const A sum = team.template sum<A>(p.count, [=](std::int64_t j) { return A(weight[j]) * A(slope[j]) * A(in[j]); });
    if (team.leads()) sums.row(r)[part] = sum;
  };
  parallel_rows(stream, x.rows(), 2, row_width<T>(w.query_heads * n), body);
}

namespace {

// partial(chunks, n D): Σ d ⊙ x · rstd of each chunk of rows.
template <class T>
void width_weight_sums(Stream& stream, View<const T, 3> d, View<const T, 3> x, std::int64_t query_heads,
                       View<const acc_t<T>, 2> rstd, View<acc_t<T>, 2> partial) {
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2);
  const RowChunks chunks = norm_backward_rows(x.rows());
  const auto body = [=] FORGE_LAMBDA(std::int64_t c, std::int64_t head, Team team) {
    const std::int64_t begin = chunks.begin(c), end = chunks.begin(c + 1), part = head < query_heads ? 0 : 1;
    A* const to = partial.row(c) + head * n;
    team.each(n, [=](std::int64_t j) {
      A sum = 0;
      for (std::int64_t r = begin; r < end; ++r)
        sum += A(d.row(r)[head * n + j]) * (A(x.row(r)[head * n + j]) * rstd.row(r)[part]);
      to[j] = sum;
    });
  };
  parallel_rows(stream, chunks.count, heads, row_width<T>(n), body);
}

}  // namespace

template <class T>
void width_norm_backward(Stream& stream, View<T, 3> d, View<const T, 3> x, const HeadWeights<T>& w,
                         View<const acc_t<T>, 2> rstd, View<const acc_t<T>, 2> sums, std::int64_t queries,
                         std::int64_t keys, View<acc_t<T>, 2> partial, View<acc_t<T>, 1> d_queries,
                         View<acc_t<T>, 1> d_keys) {
  note_rows(stream, "width_norm_backward", bytes_in(d, x), bytes_in(d));
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), n = x.extent(2), first_key = w.query_heads * n;
  if (!d_queries.empty()) {
    const View<A, 2> chunks = partial.slice(0, norm_backward_chunks(x.rows()));
    width_weight_sums<T>(stream, d, x, w.query_heads, rstd, chunks);
    add_partial_sums<A>(stream, View<A, 2>(chunks.data, {{chunks.rows(), first_key}}, chunks.pitch), d_queries);
    add_partial_sums<A>(
        stream, View<A, 2>(chunks.data + first_key, {{chunks.rows(), heads * n - first_key}}, chunks.pitch), d_keys);
  }
  const A of_queries = A(queries), of_keys = A(keys);
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t head, Team team) {
    const bool query = head < w.query_heads;
    const A scale = rstd.row(r)[query ? 0 : 1];
    const A slope = scale * scale * sums.row(r)[query ? 0 : 1] / (query ? of_queries : of_keys);
    const T *in = x.row(r) + head * n, *weight = width_weights(w, head, n);
    T* const to = d.row(r) + head * n;
    team.map(
        n, [=](const T& w_j, const T& x_j, T& d_j) { d_j = T(scale * (A(w_j) * A(d_j) - A(x_j) * slope)); }, weight, in,
        in_place(to));
  };
  parallel_rows(stream, x.rows(), heads, row_width<T>(n), body);
}

FORGE_INSTANTIATE_FUNCTION(width_squares);
FORGE_INSTANTIATE_FUNCTION(width_rstd);
FORGE_INSTANTIATE_FUNCTION(width_norm_forward);
FORGE_INSTANTIATE_FUNCTION(width_slopes);
FORGE_INSTANTIATE_FUNCTION(width_norm_backward);

}  // namespace forge
