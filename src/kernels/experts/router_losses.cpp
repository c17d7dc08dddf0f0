
#include "core/random.hpp"
#include "device/parallel.hpp"
#include "kernels/experts/expert_kernels.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

template <class A>
void router_z_loss(Stream& stream, View<const A, 2> logits, double coefficient, View<A, 1> z, View<A, 2> d_logits,
                   View<const std::int32_t, 2> experts) {
  note_rows(stream, "router_z_loss", bytes_in(logits, d_logits), bytes_in(d_logits));
  const std::int64_t E = logits.columns();
  parallel_rows(stream, logits.rows(), row_width<A>(E), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    if (!experts.empty() && experts.row(r)[0] < 0) {
      if (!z.empty() && team.leads()) z[r] = A(0);
      return;
    }
    const A* x = logits.row(r);
    const A largest = team.template max<A>(E, [=](std::int64_t j) { return x[j]; });
    const A sum = team.template sum<A>(E, [=](std::int64_t j) { return math::exp(x[j] - largest); });
    const A lse = largest + math::log(sum);
    if (!d_logits.empty()) {
      A* d = d_logits.row(r);
      const A factor = A(2 * coefficient) * lse / sum;
      team.each(E, [=](std::int64_t j) { d[j] += factor * math::exp(x[j] - largest); });
    }
    if (!z.empty() && team.leads()) z[r] = lse * lse;
  });
}

namespace {

// 1 + amount · (2u − 1): column j takes word j mod 4 of the draw (sample, position, j / 4), at the middle of its
// interval.
struct JitterRow {
  std::uint64_t key, sample, position;
  double amount;

  FORGE_INLINE double factor(std::int64_t j) const {
    const auto words = philox(key, sample, position | static_cast<std::uint32_t>(j / 4));
    const double u = (static_cast<double>(words[static_cast<int>(j % 4)]) + 0.5) * (1.0 / 4294967296.0);
    return 1 + amount * (2 * u - 1);
  }
};

}  // namespace

template <class T>
void jitter(Stream& stream, View<const T, 2> x, View<T, 2> y, Jitter how) {
  note_rows(stream, "jitter", bytes_in(x), bytes_in(y));
  using A = acc_t<T>;
  const std::int64_t n = x.columns(), *samples = how.samples.data;
  const std::int32_t* positions = how.positions.data;
  const std::uint64_t key = how.key;
  const double amount = how.amount;
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const JitterRow row{key, static_cast<std::uint64_t>(samples[r]), static_cast<std::uint64_t>(positions[r]) << 32,
                        amount};
    const T* in = x.row(r);
    T* out = y.row(r);
    team.each(n, [=](std::int64_t j) { out[j] = T(A(in[j]) * A(row.factor(j))); });
  });
}

template <class A>
void router_statistics(Stream& stream, RouterOptions options, View<const A, 2> scores,
                       View<const std::int32_t, 2> experts, View<const std::int32_t, 1> scope, View<double, 2> partial,
                       View<double, 2> table) {
  note_rows(stream, "router_statistics", bytes_in(scores), 0);
  const std::int64_t rows = scores.rows(), E = options.experts, k = options.chosen, n = 2 * E + 1;
  const std::int64_t scopes = table.rows(), chunks = router_partial_rows(rows);
  const bool sums = sums_to_one(options.score);
  // Row i R / chunks, where i R may be beyond 2^32: with R = whole · chunks + rest.
  const std::int64_t whole = chunks > 0 ? rows / chunks : 0, rest = rows - whole * chunks;
  require(chunks < (1 << 16), "routers take fewer than 4 Mi rows");
  parallel_rows(stream, chunks * scopes, [=] FORGE_LAMBDA(std::int64_t task, Team team) {
    const std::int64_t chunk = quotient(task, scopes), g = task - chunk * scopes;
    double* to = partial.row(task);
    team.each(n, [=](std::int64_t j) { to[j] = 0; });
    const std::int64_t begin = whole * chunk + quotient(rest * chunk, chunks);
    const std::int64_t end = whole * (chunk + 1) + quotient(rest * (chunk + 1), chunks);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int32_t* e = experts.row(r);
      if (scope[r] != g || e[0] < 0) continue;
      const A* s = scores.row(r);
      const double sum =
          sums ? 1.0 : team.template sum<double>(E, [=](std::int64_t j) { return static_cast<double>(s[j]); });
      team.each(E, [=](std::int64_t j) { to[E + j] += static_cast<double>(s[j]) / sum; });
      if (!team.leads()) continue;
      for (std::int64_t c = 0; c < k; ++c) to[e[c]] += 1;
      to[2 * E] += 1;
    }
  });
  parallel_for(stream, scopes * n, [=] FORGE_LAMBDA(std::int64_t i) {
    const std::int64_t g = quotient(i, n), j = i - g * n;
    double sum = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial.row(chunk * scopes + g)[j];
    table.row(g)[j] = sum;
  });
}

void router_balance_loss(Stream& stream, RouterOptions options, View<const double, 2> table, View<double, 1> loss) {
  note_rows(stream, "router_balance_loss", bytes_in(table), 0);
  const std::int64_t E = options.experts, k = options.chosen;
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const double sum = team.template sum<double>(table.rows() * E, [=](std::int64_t i) {
      const double* t = table.row(quotient(i, E));
      const std::int64_t j = i - quotient(i, E) * E;
      const double rows = t[2 * E];
      return rows > 0 ? t[j] / (rows * static_cast<double>(k)) * (t[E + j] / rows) : 0.0;
    });
    if (team.leads()) loss[0] += static_cast<double>(E) * sum;
  });
}

// With c_i = coefficient · E f_i / rows:  d_s_i = c_i where scores sum to one, else, P being of p = s / Σ s:
//   d_s_i = (c_i − Σ_j c_j p_j) / Σ s
template <class A>
void router_balance_gradient(Stream& stream, RouterOptions options, View<const A, 2> scores,
                             View<const double, 2> table, View<const std::int32_t, 1> scope, double coefficient,
                             View<A, 2> d_scores) {
  const std::int64_t E = options.experts, k = options.chosen;
  const bool sums = sums_to_one(options.score);  // then scores aren't read
  note_rows(stream, "router_balance_gradient", sums ? 0 : bytes_in(scores), bytes_in(d_scores));
  parallel_rows(stream, scores.rows(), row_width<A>(E), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A* s = scores.row(r);
    A* d = d_scores.row(r);
    const double *counts = scope[r] < 0 ? nullptr : table.row(scope[r]), rows = counts ? counts[2 * E] : 0;
    if (rows == 0) return team.each(E, [=](std::int64_t j) { d[j] = A(0); });
    const double factor = coefficient * static_cast<double>(E) / (rows * rows * static_cast<double>(k));
    if (sums) return team.each(E, [=](std::int64_t j) { d[j] = static_cast<A>(factor * counts[j]); });
    const A sum = team.template sum<A>(E, [=](std::int64_t j) { return s[j]; });
    const A dot = team.template sum<A>(E, [=](std::int64_t j) { return static_cast<A>(factor * counts[j]) * s[j]; });
    const A mean = dot / sum;
    team.each(E, [=](std::int64_t j) { d[j] = (static_cast<A>(factor * counts[j]) - mean) / sum; });
  });
}

void fill_counts(Stream& stream, std::int64_t value, View<std::int64_t, 1> counts) {
  note_rows(stream, "fill_counts", 0, bytes_in(counts));
  parallel_for(stream, counts.rows(), [=] FORGE_LAMBDA(std::int64_t j) { counts[j] = value; });
}

void add_counts(Stream& stream, View<const std::int64_t, 1> counts, View<double, 1> load) {
  note_rows(stream, "add_counts", bytes_in(counts, load), bytes_in(load));
  parallel_for(stream, load.rows(), [=] FORGE_LAMBDA(std::int64_t j) { load[j] += static_cast<double>(counts[j]); });
}

template <class A>
void router_bias_update(Stream& stream, View<const double, 1> load, double rate, View<A, 1> bias) {
  const std::int64_t E = bias.rows();
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const double total = team.template sum<double>(E, [=](std::int64_t j) { return load[j]; });
    team.each(E, [=](std::int64_t j) {
      const double lacking = total - load[j] * static_cast<double>(E);  // whole numbers: no rounding decides the sign
      bias[j] += static_cast<A>(lacking > 0 ? rate : (lacking < 0 ? -rate : 0.0));
    });
  });
}

FORGE_INSTANTIATE_ACC_FUNCTION(router_z_loss);
FORGE_INSTANTIATE_ACC_FUNCTION(router_statistics);
FORGE_INSTANTIATE_ACC_FUNCTION(router_balance_gradient);
FORGE_INSTANTIATE_ACC_FUNCTION(router_bias_update);
FORGE_INSTANTIATE_FUNCTION(jitter);

}  // namespace forge
