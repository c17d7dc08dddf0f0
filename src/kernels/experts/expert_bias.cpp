#include "device/parallel.hpp"
#include "kernels/experts/expert_kernels.hpp"

namespace forge {

namespace {

constexpr std::int64_t bias_strip = 256;  // columns of one team's sums

// The group of a row, found by halving; groups.count: it has none.
FORGE_INLINE std::int64_t expert_of_row(const RowGroups& groups, std::int64_t r) {
  std::int64_t begin = 0, end = groups.count;
  while (begin < end) {
    const std::int64_t middle = (begin + end) / 2;
    if (groups.begin_of(middle + 1) > r)
      end = middle;
    else
      begin = middle + 1;
  }
  return begin;
}

}  // namespace

template <class T>
void expert_bias_forward(Stream& stream, const RowGroups& groups, View<const T, 2> bias, BiasColumns which,
                         View<const acc_t<T>, 1> weights, View<T, 2> x) {
  note_rows(stream, "expert_bias_forward", x.rows() * which.columns * sizeof(T), x.rows() * which.columns * sizeof(T));
  using A = acc_t<T>;
  parallel_rows(stream, x.rows(), row_width<T>(which.columns), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const std::int64_t group = expert_of_row(groups, r);
    if (group == groups.count) return;
    const A weight = weights.empty() ? A(1) : weights[r];
    team.map(
        which.columns, [=](const T& b, T& to) { to = T(A(to) + weight * A(b)); }, bias.row(group),
        in_place(x.row(r) + which.first));
  });
}

template <class T>
void expert_bias_backward(Stream& stream, const RowGroups& groups, View<const T, 2> d, BiasColumns which,
                          View<const acc_t<T>, 1> weights, View<acc_t<T>, 2> d_bias) {
  note_rows(stream, "expert_bias_backward", d.rows() * which.columns * sizeof(T), 0);
  using A = acc_t<T>;
  const std::int64_t strips = (which.columns + bias_strip - 1) / bias_strip;
  const bool aligned = aligned_rows(d) && which.first * static_cast<int>(sizeof(T)) % 16 == 0;
  parallel_rows(stream, groups.count * strips, [=] FORGE_LAMBDA(std::int64_t task, Team team) {
    const std::int64_t group = quotient(task, strips), first = (task - group * strips) * bias_strip;
    const std::int64_t width = which.columns - first < bias_strip ? which.columns - first : bias_strip;
    const auto lines = column_lines<T>(aligned, [=](std::int64_t r) {
      return column_line(d.row(r) + which.first + first, weights.empty() ? A(1) : weights[r]);
    });
    team.template column_sums<A>(
        width, groups.begin_of(group), groups.begin_of(group + 1), lines,
        [=](A weight, const T& x) { return weight * A(x); }, [=](const A& sum, A& to) { to += sum; },
        in_place(d_bias.row(group) + first));
  });
}

template <class T>
void expert_bias_weights(Stream& stream, const RowGroups& groups, View<const T, 2> bias, BiasColumns which,
                         View<const T, 2> d, View<acc_t<T>, 1> d_weights) {
  note_rows(stream, "expert_bias_weights", d.rows() * which.columns * sizeof(T), 0);
  using A = acc_t<T>;
  parallel_rows(stream, d.rows(), row_width<T>(which.columns), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const std::int64_t group = expert_of_row(groups, r);
    if (group == groups.count) return;
    const A dot = team.template sum<A>(
        which.columns, [=](const T& b, const T& d_j) { return A(b) * A(d_j); }, bias.row(group),
        d.row(r) + which.first);
    if (team.leads()) d_weights[r] += dot;
  });
}

FORGE_INSTANTIATE_FUNCTION(expert_bias_forward);
FORGE_INSTANTIATE_FUNCTION(expert_bias_backward);
FORGE_INSTANTIATE_FUNCTION(expert_bias_weights);

}  // namespace forge
