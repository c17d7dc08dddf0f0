#include <cmath>

#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/attention/attention.hpp"

// The row-wise parts of attention, written once for both builds. A row here is one head of one query.

namespace forge {

namespace {

// On a GPU several heads at a time, if they begin and end at multiples of 16 bytes and fit a warp (`whole`).
template <bool whole, class T, class A>
void attention_delta_of(Stream& stream, View<const T, 3> d_o, View<const T, 3> o, View<A, 2> delta) {
  constexpr int together = whole ? rows_at_a_time : 1;
  const std::int64_t heads = o.extent(1), columns = o.extent(2);
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t part, Team team) {
    using Head = decltype(team.template row<1, whole>(columns, o.row(r)));
    Array<Head, together> xs, ys;
    Array<A, together> sums;
    const int first = static_cast<int>(part) * together, all = static_cast<int>(heads);
    const auto width = [=](int i) { return first + i < all ? columns : 0; };
    const T *const x = d_o.row(r) + first * columns, *const y = o.row(r) + first * columns;
    for_each_of<together>([&](int i) {
      xs[i] = team.template row<1, whole>(width(i), x + i * columns);
      ys[i] = team.template row<1, whole>(width(i), y + i * columns);
    });
    for_each_of<together>([&](int i) {
      sums[i] = team.template part_of_sum<A>(
          width(i), [](const T& x_c, const T& y_c) { return A(x_c) * A(y_c); }, xs[i], ys[i]);
    });
    team.template add_parts<whole>(sums);
    for_each_of<together>([&](int i) {
      if (first + i < all && team.leads()) delta.row(r)[first + i] = sums[i];
    });
  };
  parallel_whole_warps(stream, o.rows(), (heads + together - 1) / together, row_width<T>(columns), body);
}

}  // namespace

template <class T>
void attention_delta(Stream& stream, View<const T, 3> d_o, View<const T, 3> o, View<acc_t<T>, 2> delta) {
  note_rows(stream, "attention_delta", bytes_in(d_o, o), 0);
  const std::int64_t heads = o.extent(1), columns = o.extent(2);
  require(d_o.extents[0] == o.rows() && d_o.extent(1) == heads && d_o.extent(2) == columns &&
              delta.rows() == o.rows() && delta.extent(1) == heads,
          "attention_delta: shapes differ");
  const bool whole = rows_at_a_time > 1 && aligned_rows(d_o, o) && columns * static_cast<int>(sizeof(T)) % 16 == 0 &&
                     row_width<T>(columns).accesses <= 32;
  return whole ? attention_delta_of<true>(stream, d_o, o, delta) : attention_delta_of<false>(stream, d_o, o, delta);
}

template <class T, class S>
void attention_merge(Stream& stream, View<S, 3> o_a, View<acc_t<T>, 2> lse_a, View<const T, 3> o_b,
                     View<const acc_t<T>, 2> lse_b) {
  note_rows(stream, "attention_merge", bytes_in(o_a, o_b), bytes_in(o_a));
  using A = acc_t<T>;
  const std::int64_t heads = o_a.extent(1), columns = o_a.extent(2);
  require(o_b.rows() == o_a.rows() && o_b.extent(1) == heads && o_b.extent(2) == columns &&
              lse_a.rows() == o_a.rows() && lse_a.extent(1) == heads && lse_b.rows() == o_a.rows() &&
              lse_b.extent(1) == heads,
          "attention_merge: shapes differ");
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t h, Team team) {
    const A a = lse_a.row(r)[h], b = lse_b.row(r)[h];
    const A larger = a < b ? b : a;
    // Where neither part has seen a key, larger is −Inf and both weights have to stay 0.
    const A shift = larger == -static_cast<A>(INFINITY) ? A(0) : larger;
    const A weight_a = std::exp(a - shift), weight_b = std::exp(b - shift), total = weight_a + weight_b;
    const A factor_a = total == A(0) ? A(0) : weight_a / total, factor_b = total == A(0) ? A(0) : weight_b / total;
    const T* y = o_b.row(r) + h * columns;
    team.map(
        columns,
        [=](const T& y_c, S& x) { x = static_cast<S>(factor_a * static_cast<A>(x) + factor_b * static_cast<A>(y_c)); },
        y, in_place(o_a.row(r) + h * columns));
    team.sync();                                                  // all have read lse_a
    if (team.leads()) lse_a.row(r)[h] = shift + std::log(total);  // −Inf where neither has seen a key
  };
  parallel_rows(stream, o_a.rows(), heads, row_width<T>(columns), body);
}

template <class T>
void attention_sinks(Stream& stream, View<const T, 1> sinks, View<T, 3> o, View<acc_t<T>, 2> lse) {
  note_rows(stream, "attention_sinks", bytes_in(o), bytes_in(o));
  using A = acc_t<T>;
  const std::int64_t heads = o.extent(1), columns = o.extent(2);
  require(sinks.rows() == heads && lse.rows() == o.rows() && lse.extent(1) == heads, "attention_sinks: shapes differ");
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t h, Team team) {
    const A a = lse.row(r)[h], sink = A(sinks[h]), larger = a < sink ? sink : a;
    const A total = larger + std::log(std::exp(a - larger) + std::exp(sink - larger)), factor = std::exp(a - total);
    team.map(
        columns, [=](T& x) { x = T(factor * A(x)); }, in_place(o.row(r) + h * columns));
    team.sync();  // all have read lse
    if (team.leads()) lse.row(r)[h] = total;
  };
  parallel_rows(stream, o.rows(), heads, row_width<T>(columns), body);
}

template <class T>
void attention_sink_terms(Stream& stream, View<const T, 1> sinks, View<const acc_t<T>, 2> lse,
                          View<const acc_t<T>, 2> delta, View<acc_t<T>, 2> terms) {
  note_rows(stream, "attention_sink_terms", bytes_in(lse, delta), bytes_in(terms));
  using A = acc_t<T>;
  const std::int64_t heads = terms.columns();
  parallel_rows(stream, terms.rows(), row_width<A>(heads), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    team.map(
        heads,
        [=](const T& sink, const A& lse_h, const A& delta_h, A& to) { to = -std::exp(A(sink) - lse_h) * delta_h; },
        sinks.data, lse.row(r), delta.row(r), terms.row(r));
  });
}

template <class A>
void add_peaks(Stream& stream, View<const A, 2> peak, View<const std::int64_t, 1> samples, View<A, 1> largest) {
  require(peak.columns() == largest.rows(), "add_peaks: heads differ");
  const std::int64_t rows = peak.rows();
  parallel_rows(stream, peak.columns(), row_width<A>(rows), [=] FORGE_LAMBDA(std::int64_t h, Team team) {
    const A none = -static_cast<A>(INFINITY);
    const A most = team.template max<A>(rows, [=](std::int64_t r) { return samples[r] < 0 ? none : peak.row(r)[h]; });
    if (team.leads() && most > largest[h]) largest[h] = most;
  });
}
template <class A>
void clear_peaks(Stream& stream, View<A, 2> largest) {
  parallel_for(stream, largest.size(),
               [=] FORGE_LAMBDA(std::int64_t i) { largest.data[i] = -static_cast<A>(INFINITY); });
}

FORGE_INSTANTIATE_ACC_FUNCTION(clear_peaks);
FORGE_INSTANTIATE_ACC_FUNCTION(add_peaks);
FORGE_INSTANTIATE_FUNCTION(attention_delta);
FORGE_INSTANTIATE_FUNCTION(attention_sinks);
FORGE_INSTANTIATE_FUNCTION(attention_sink_terms);
FORGE_INSTANTIATE_ONE(attention_merge<double, double>);
FORGE_INSTANTIATE_ONE(attention_merge<float, float>);
FORGE_INSTANTIATE_ONE(attention_merge<bf16, bf16>);
FORGE_INSTANTIATE_ONE(attention_merge<bf16, float>);

}  // namespace forge
