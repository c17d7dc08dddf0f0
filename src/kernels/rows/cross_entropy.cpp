#include <type_traits>

#include "device/parallel.hpp"
#include "device/quick_exp.hpp"
#include "device/rows_once.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

// With x' = x − max x:  p_j = e^x'_j / Σ e^x',  lse = max x + log Σ e^x'. NaN anywhere makes all of them NaN. Where the
// gradient has the type of the logits, it holds e^x' until the sum is known, and may stand in their memory; where it is
// rounded to 16 bits, e^x' is taken twice.
namespace {

template <class T, class A>
FORGE_INLINE A keep(T& place, A value) {
  place = T(value);
  return value;
}

// e^x of x <= 0.
FORGE_INLINE float exp_below_0(float x) {
  if (FORGE_DEVICE_CODE) return quick_exp(x);
  return math::exp(x);
}

template <class T>
struct RowLosses {
  using A = acc_t<T>;
  View<const A, 2> logits;
  View<const std::int32_t, 1> labels;
  A scale, z_slope;  // z_slope · lse = d(z_coefficient · lse²) / d lse
  View<A, 1> loss, z;
  View<T, 2> d_logits;
  RowWeights weights;

  FORGE_INLINE A scale_of(std::int64_t r) const { return scale * A(weights.of(r)); }
  FORGE_INLINE T* gradient(std::int64_t r) const { return d_logits.empty() ? nullptr : d_logits.row(r); }
  FORGE_INLINE void ignore(std::int64_t r, Team team) const {
    if (T* const d = gradient(r))
      team.map(
          logits.columns(), [=](T& d_j) { d_j = T(A(0)); }, d);
    if (team.leads()) loss[r] = z[r] = A(0);
  }
  // Of e^x'_j.
  FORGE_INLINE A factor(A lse, A sum) const { return (A(1) + z_slope * lse) / sum; }
  FORGE_INLINE void finish(std::int64_t r, Team team, A x_label, A e_label, A log_sum, A lse, A factor) const {
    team.sync();  // d[label] is written again
    if (!team.leads()) return;
    if (T* const d = gradient(r)) d[labels[r]] = T((e_label * factor - A(1)) * scale_of(r));
    loss[r] = log_sum - x_label;  // of small terms, where lse − logit may cancel
    z[r] = lse * lse;
  }
};

// With d and without in the same order: the loss doesn't depend on it.
template <class T>
void cross_entropy_in_place(Stream& stream, const RowLosses<T>& p) {
  using A = acc_t<T>;
  const std::int64_t n = p.logits.columns();
  parallel_rows(stream, p.logits.rows(), row_width<A>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    if (p.labels[r] < 0) return p.ignore(r, team);
    const A* x = p.logits.row(r);
    T* d = p.gradient(r);
    const A at_label = x[p.labels[r]];  // read before d, which may be the same memory, is written
    const A largest = team.template max<A>(
        n, [=](const A& x_j) { return x_j; }, x);
    const A sum = d ? team.template sum<A>(
                          n, [=](const A& x_j, T& d_j) { return keep(d_j, math::exp(x_j - largest)); }, x, d)
                    : team.template sum<A>(
                          n, [=](const A& x_j) { return math::exp(x_j - largest); }, x);
    const A log_sum = math::log(sum), lse = largest + log_sum, factor = p.factor(lse, sum), to_gradient = p.scale_of(r);
    if (d)
      team.map(
          n, [=](T& d_j) { d_j = T(A(d_j) * factor * to_gradient); }, in_place(d));
    p.finish(r, team, at_label - largest, math::exp(at_label - largest), log_sum, lse, factor);
  });
}

template <class T, class Row>
FORGE_INLINE void rounded_row(const RowLosses<T>& p, std::int64_t r, Team team, const Row& x) {
  const auto [largest, sum] = x.exp_sum(team, [](float x_j) { return exp_below_0(x_j); });
  const float most = largest, at_label = p.logits.row(r)[p.labels[r]] - most;
  const float log_sum = math::log(sum), lse = most + log_sum, factor = p.factor(lse, sum),
              slope = factor * p.scale_of(r);
  if (T* const d = p.gradient(r))
    x.map(
        team, [=](const float& x_j, T& d_j) { d_j = T(exp_below_0(x_j - most) * slope); }, d);
  p.finish(r, team, at_label, exp_below_0(at_label), log_sum, lse, factor);
}

template <class T>
void cross_entropy_rounded(Stream& stream, const RowLosses<T>& p) {
  const std::int64_t rows = p.logits.rows(), n = p.logits.columns();
  if (read_once(p.logits, p.d_logits)) {
    const auto line = [=] FORGE_LAMBDA(std::int64_t r) { return p.labels[r] < 0 ? nullptr : p.logits.row(r); };
    return parallel_rows_once(stream, rows, n, line, [=] FORGE_LAMBDA(std::int64_t r, Team team, const RowOnce& x) {
      if (p.labels[r] < 0) return p.ignore(r, team);
      rounded_row(p, r, team, x);
    });
  }
  parallel_rows(stream, rows, row_width<float>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    if (p.labels[r] < 0) return p.ignore(r, team);
    rounded_row(p, r, team, PlainRow{p.logits.row(r), n});
  });
}

}  // namespace

template <class T>
void cross_entropy(Stream& stream, View<const acc_t<T>, 2> logits, View<const std::int32_t, 1> labels, double scale,
                   double z_coefficient, View<acc_t<T>, 1> loss, View<acc_t<T>, 1> z, View<T, 2> d_logits,
                   const RowWeights& weights) {
  note_rows(stream, "cross_entropy", bytes_in(logits), bytes_in(d_logits));
  using A = acc_t<T>;
  const RowLosses<T> p{logits, labels, A(scale), A(2 * z_coefficient), loss, z, d_logits, weights};
  if constexpr (std::is_same_v<T, A>)
    cross_entropy_in_place(stream, p);
  else
    cross_entropy_rounded(stream, p);
}

// The largest of a row's numbers on no columns, or where all are −Inf, is −Inf; the sum is 0 there, which the other
// ranks' parts outweigh. If no rank has more, −Inf − (−Inf) makes loss and gradient NaN, as on one rank.
template <class T>
void cross_entropy_statistics(Stream& stream, View<const acc_t<T>, 2> logits, std::int64_t columns,
                              View<const std::int32_t, 1> labels, std::int64_t first_column,
                              View<acc_t<T>, 2> statistics) {
  note_rows(stream, "cross_entropy_statistics", bytes_in(logits), 0);
  using A = acc_t<T>;
  parallel_rows(stream, logits.rows(), row_width<A>(columns), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A* x = logits.row(r);
    A* to = statistics.row(r);
    if (labels[r] < 0) {
      if (team.leads()) to[0] = to[1] = to[2] = A(0);
      return;
    }
    const A none = -static_cast<A>(INFINITY);
    const auto [largest, sum] = team.exp_sum(
        columns, [](A x_j) { return math::exp(x_j); }, x);
    if (!team.leads()) return;
    const std::int64_t label = labels[r] - first_column;
    to[0] = largest;
    to[1] = sum;
    to[2] = label >= 0 && label < columns ? x[label] : none;
  });
}

// With m_i, s_i, l_i of rank i:  m = max m_i,  Σ e^(x − m) = Σ s_i e^(m_i − m),  x[label] = max l_i. The sum is NaN
// where any number of the row is, or where one is +Inf.
template <class T>
void cross_entropy_from_statistics(Stream& stream, View<const acc_t<T>, 2> logits, std::int64_t columns,
                                   View<const std::int32_t, 1> labels, std::int64_t first_column,
                                   View<const acc_t<T>, 2> all_statistics, int ranks, double scale,
                                   double z_coefficient, View<acc_t<T>, 1> loss, View<acc_t<T>, 1> z,
                                   View<T, 2> d_logits, const RowWeights& weights) {
  note_rows(stream, "cross_entropy", bytes_in(logits), bytes_in(d_logits));
  using A = acc_t<T>;
  const std::int64_t rows = logits.rows(), width = logits.columns();
  parallel_rows(stream, rows, row_width<A>(width), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A* x = logits.row(r);
    T* d = d_logits.empty() ? nullptr : d_logits.row(r);
    if (labels[r] < 0) {
      if (d)
        team.map(
            width, [=](T& d_j) { d_j = T(A(0)); }, d);
      if (team.leads()) loss[r] = z[r] = A(0);
      return;
    }
    A largest = -static_cast<A>(INFINITY), at_label = largest, sum = A(0);
    for (int i = 0; i < ranks; ++i) {
      const A* part = all_statistics.row(i * rows + r);
      largest = part[0] > largest ? part[0] : largest;
      at_label = part[2] > at_label ? part[2] : at_label;
    }
    for (int i = 0; i < ranks; ++i) {
      const A* part = all_statistics.row(i * rows + r);
      sum += part[1] * math::exp(part[0] - largest);
    }
    const A log_sum = math::log(sum), lse = largest + log_sum;
    const A factor = (A(1) + A(2 * z_coefficient) * lse) / sum, to_gradient = A(scale) * A(weights.of(r));
    if (d) {
      team.map(
          columns, [=](const A& x_j, T& d_j) { d_j = T(math::exp(x_j - largest) * factor * to_gradient); }, x, d);
      team.map(
          width - columns, [=](T& d_j) { d_j = T(A(0)); }, d + columns);
    }
    team.sync();  // d[label] is written again
    if (!team.leads()) return;
    const std::int64_t label = labels[r] - first_column;
    if (d && label >= 0 && label < columns) d[label] = T((math::exp(at_label - largest) * factor - A(1)) * to_gradient);
    loss[r] = log_sum - (at_label - largest);
    z[r] = lse * lse;
  });
}

FORGE_INSTANTIATE_FUNCTION(cross_entropy);
FORGE_INSTANTIATE_FUNCTION(cross_entropy_statistics);
FORGE_INSTANTIATE_FUNCTION(cross_entropy_from_statistics);

}  // namespace forge
