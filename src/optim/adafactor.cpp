#include <cmath>
#include <limits>

#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/column_sums.hpp"
#include "kernels/rows/math.hpp"
#include "optim/factored_update.hpp"

namespace forge {

namespace {

// Constants of torch.optim.Adafactor.
constexpr double decay_power = -0.8, least_weight = 1e-3;

template <class A>
struct SquareTerm {
  FORGE_INLINE double operator()(NoScale, const A& g) const { return double(g) * double(g); }
};

// Second moments of a part of a tensor. Of a matrix a row's times a column's over the mean of all rows', of a vector
// its elements' own.
template <class A>
struct Moments {
  const A *rows = nullptr, *columns = nullptr, *own = nullptr;
  const double* mean = nullptr;
  std::int64_t width = 0;

  FORGE_INLINE A of(std::int64_t r, std::int64_t j) const {
    constexpr A least = std::numeric_limits<A>::epsilon();
    const A v = own ? own[r * width + j] : rows[r] * columns[j] / (A(*mean) > least ? A(*mean) : least);
    return v > least * least ? v : least * least;
  }
};

template <class T>
Moments<acc_t<T>> moments_of(const FactoredArgs<T>& run, const FactoredPart& part) {
  const FactoredTensor& tensor = run.plan.tensors[part.tensor];
  if (!tensor.is_matrix()) return {nullptr, nullptr, run.own_moments(part), nullptr, part.columns};
  const acc_t<T>* const rows = run.moments.data + tensor.moments;
  return {rows + part.row, rows + tensor.rows + part.column, nullptr, run.buffers.means.data + part.tensor,
          part.columns};
}

}  // namespace

// Adafactor (Shazeer & Stern 2018, arXiv 1804.04235) as PyTorch computes it. Of update t, with b = t^−0.8:
//   R ← R + b (mean of g² over columns − R);  C ← C + b (mean of g² over rows − C);  v = R C / max(mean R, ε)
//   of vectors  v ← v + b (g² − v);   u = g / √max(v, ε²);   ε: the step of the weights' type at 1
//   p ← p (1 − lr·decay) − max(1e-3, rms p) · min(lr, 1/√t) · u / max(1, rms u)
// p's root of the mean square is that of before the decay.
template <class T>
void add_squares(Stream& stream, const FactoredArgs<T>& run) {
  using A = acc_t<T>;
  const auto& [unit, plan, b, line_moments] = run;
  fill_zero(stream, b.sums.data, to_size(b.sums.size()) * sizeof(double));
  fill_zero(stream, b.updates.data, to_size(b.updates.size()) * sizeof(double));
  for (const FactoredPart& part : plan.counted) {
    const std::int64_t from = part.at - unit.state.begin, to = from + part.rows * part.columns;
    const std::int64_t weights_at = plan.moments + static_cast<std::int64_t>(part.tensor);
    sum_of_squares<A>(stream, unit.master.slice(from, to), b.squares, b.sums.slice(weights_at, weights_at + 1));
    const FactoredTensor& tensor = plan.tensors[part.tensor];
    if (!tensor.is_matrix()) continue;
    const View<const A, 2> g(unit.gradient.data + from, {{part.rows, part.columns}});
    double* const rows = b.sums.data + tensor.moments + part.row;
    const std::int64_t n = part.columns;
    parallel_rows(stream, part.rows, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
      const A* row = g.row(r);
      const double sum = team.template sum<double>(n, [=](std::int64_t j) { return double(row[j]) * double(row[j]); });
      if (team.leads()) rows[r] += sum;
    });
    const std::int64_t first = tensor.moments + tensor.rows + part.column;
    add_column_sums<double, A>(
        stream, part.rows, 1, aligned_rows(g), View<double, 2>(b.columns.data, {{norm_partial_rows(part.rows), n}}),
        b.sums.slice(first, first + n),
        [=] FORGE_LAMBDA(std::int64_t r, std::int64_t column) { return column_line(g.row(r) + column); },
        SquareTerm<A>{});
  }
}

template <class T>
void update_moments(Stream& stream, const Update& update, const FactoredArgs<T>& run) {
  using A = acc_t<T>;
  const auto& [unit, plan, b, line_moments] = run;
  const double fraction = std::pow(static_cast<double>(update.number), decay_power);
  const View<const StepScalars, 1> scalars = update.scalars;
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    const FactoredTensor& tensor = plan.tensors[t];
    if (!tensor.is_matrix()) continue;
    A* const moments = run.moments.data + tensor.moments;
    const double* const sums = b.sums.data + tensor.moments;
    const std::int64_t m = tensor.rows, n = tensor.columns;
    parallel_for(stream, m + n, [=] FORGE_LAMBDA(std::int64_t i) {
      if (scalars[0].finite == 0) return;
      const double clip = scalars[0].clip_coefficient, mean = sums[i] * clip * clip / double(i < m ? n : m);
      moments[i] = A(double(moments[i]) + fraction * (mean - double(moments[i])));
    });
    double* const means = b.means.data + t;
    parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
      const double sum = team.template sum<double>(m, [=](std::int64_t r) { return double(moments[r]); });
      if (team.leads()) *means = sum / double(m);
    });
  }
  for (const FactoredPart& part : plan.held) {
    if (plan.tensors[part.tensor].is_matrix()) continue;
    const A* const gradient = unit.gradient.data + (part.at - unit.state.begin);
    A* const own = run.own_moments(part);
    parallel_for(stream, part.columns, [=] FORGE_LAMBDA(std::int64_t i) {
      if (scalars[0].finite == 0) return;
      const A g = gradient[i] * A(scalars[0].clip_coefficient);
      own[i] = own[i] + A(fraction) * (g * g - own[i]);
    });
  }
}

template <class T>
void add_updates(Stream& stream, const Update& update, const FactoredArgs<T>& run) {
  using A = acc_t<T>;
  const auto& [unit, plan, b, line_moments] = run;
  const View<const StepScalars, 1> scalars = update.scalars;
  for (const FactoredPart& part : plan.counted) {
    const Moments<A> moments = moments_of(run, part);
    const std::int64_t m = part.rows, n = part.columns;
    const A* const gradient = unit.gradient.data + (part.at - unit.state.begin);
    double *const rows = b.rows.data, *const squares = b.updates.data + part.tensor;
    parallel_rows(stream, m, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
      const A* row = gradient + r * n;
      const A clip = A(scalars[0].clip_coefficient);
      const double sum = team.template sum<double>(n, [=](std::int64_t j) {
        const double g = double(row[j] * clip);
        return g * g / double(moments.of(r, j));
      });
      if (team.leads()) rows[r] = sum;
    });
    parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
      const double sum = team.template sum<double>(m, [=](std::int64_t r) { return rows[r]; });
      if (team.leads()) *squares += sum;
    });
  }
}

template <class T>
void apply_updates(Stream& stream, const Update& update, const FactoredArgs<T>& run) {
  using A = acc_t<T>;
  const auto& [unit, plan, b, line_moments] = run;
  const View<const StepScalars, 1> scalars = update.scalars;
  const double most = 1 / std::sqrt(static_cast<double>(update.number));
  for (const FactoredPart& part : plan.held) {
    const FactoredTensor& tensor = plan.tensors[part.tensor];
    const Moments<A> moments = moments_of(run, part);
    const UpdateRule& rule = unit.local.rules[tensor.parameter];
    const double full = update.rates.of(rule.learning_rate), rate = std::min(full, most);
    const A decay = A(1 - full * rule.weight_decay);
    const std::int64_t n = part.columns, offset = part.at - unit.state.begin;
    A* const gradient = unit.gradient.data + offset;
    const bool leaves = update.leaves;
    A* const weights = unit.master.data + offset;
    T* const copies = std::is_same_v<A, T> ? nullptr : unit.copy.data + offset;
    const double elements = static_cast<double>(tensor.elements);
    const double *const weight_squares = b.sums.data + plan.moments + part.tensor, *const update_squares =
                                                                                       b.updates.data + part.tensor;
    parallel_rows(stream, part.rows, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
      if (scalars[0].finite == 0) return;
      const double of_weights = math::sqrt(*weight_squares / elements),
                   of_updates = math::sqrt(*update_squares / elements);
      const A size =
          A((of_weights > least_weight ? of_weights : least_weight) * rate / (of_updates > 1 ? of_updates : 1));
      const A clip = A(scalars[0].clip_coefficient);
      team.each(n, [=](std::int64_t j) {
        const std::int64_t i = r * n + j;
        const A p = weights[i] * decay - size * (gradient[i] * clip / math::sqrt(moments.of(r, j)));
        if (leaves) gradient[i] = p - weights[i];
        weights[i] = p;
        if (copies) copies[i] = T(p);
      });
    });
  }
}

FORGE_INSTANTIATE_FUNCTION(add_squares);
FORGE_INSTANTIATE_FUNCTION(update_moments);
FORGE_INSTANTIATE_FUNCTION(add_updates);
FORGE_INSTANTIATE_FUNCTION(apply_updates);

}  // namespace forge
