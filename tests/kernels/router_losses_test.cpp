#include <algorithm>
#include <numeric>

#include "fixture.hpp"
#include "kernels/experts/expert_kernels.hpp"

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

template <class N>
N log_sum_exp(const std::vector<N>& x) {
  double largest = value(x[0]);
  for (const N& v : x) largest = std::max(largest, value(v));
  return N(largest) + log(sum<N>(static_cast<int64_t>(x.size()), [&](int64_t j) { return exp(x[j] - N(largest)); }));
}

template <class A>
void check_z_loss(int64_t R, int64_t E) {
  using N = Tracked<A>;
  const double coefficient = 0.03;
  Field<A> x(R, E, normal_values(R * E, 1, 3), 2), z(1, R), d(R, E, normal_values(R * E, 2), 1);
  Stream s(2);
  const Values in = x.read(s), before = d.read(s);
  router_z_loss<A>(s, x.view(), coefficient, z.vector(), d.view());
  std::vector<N> values, gradients;
  for (int64_t r = 0; r < R; ++r) {
    const std::vector<N> row(in.begin() + r * E, in.begin() + (r + 1) * E);
    const N lse = log_sum_exp(row);
    values.push_back(lse * lse);
    double largest = in[r * E];
    for (int64_t j = 0; j < E; ++j) largest = std::max(largest, in[r * E + j]);
    const N total = sum<N>(E, [&](int64_t j) { return exp(row[j] - N(largest)); });
    for (int64_t j = 0; j < E; ++j) {
      const N slope = constant<N>(2 * coefficient) * lse / total * exp(row[j] - N(largest));
      gradients.push_back(N(before[r * E + j]) + slope);
      std::vector<Dual> along(in.begin() + r * E, in.begin() + (r + 1) * E);
      along[j].d = 1;
      const Dual l = log_sum_exp(along);
      ASSERT_NEAR(slope.v, coefficient * (l * l).d, 64 * roundoff<double> * (std::abs(slope.v) + 1));
    }
  }
  expect_close<A>(z.read(s), values, "z");
  expect_close<A>(d.read(s), gradients, "d_logits");
  const Values after = d.read(s), zs = z.read(s);
  router_z_loss<A>(s, x.view(), coefficient, z.vector(), View<A, 2>());
  EXPECT_TRUE(same_bits(z.read(s), zs)) << "value alone";
  d.write(before);
  router_z_loss<A>(s, x.view(), coefficient, View<A, 1>(), d.view());
  EXPECT_TRUE(same_bits(d.read(s), after)) << "gradient alone";
  // The second row is filler.
  Field<std::int32_t> experts(R, 1, Values{0, -1, 0, 0, 0});
  d.write(before);
  router_z_loss<A>(s, x.view(), coefficient, z.vector(), d.view(), experts.view());
  const Values filled = d.read(s), of_rows = z.read(s);
  for (int64_t r = 0; r < R; ++r) {
    ASSERT_EQ(of_rows[r], r == 1 ? 0 : zs[r]);
    for (int64_t j = 0; j < E; ++j) ASSERT_EQ(filled[r * E + j], (r == 1 ? before : after)[r * E + j]);
  }
}

TEST(RouterZLoss, ValueAndGradient) {
  for (const int64_t E : {1, 3, 17, 64, 300}) {
    check_z_loss<double>(5, E);
    check_z_loss<float>(5, E);
  }
}

template <class T>
Values jittered(Stream& s, const Values& x, int64_t columns, const Values& samples, const Values& positions,
                std::uint64_t key, double amount = 0.1) {
  const auto R = static_cast<int64_t>(samples.size());
  Field<T> in(R, columns, x, 1), out(R, columns, 2);
  Field<std::int64_t> of(1, R, samples);
  Field<std::int32_t> at(1, R, positions);
  jitter<T>(s, in.view(), out.view(), {amount, key, of.vector(), at.vector()});
  s.synchronize();
  return out.read(s);
}

// Factors are uniform in the interval: by mean and variance within 5 standard deviations of their own.
TEST(Jitter, FactorsAreUniform) {
  const int64_t R = 40, C = 101, n = R * C;
  Values samples(R), positions(R);
  for (std::size_t r = 0; r < R; ++r)
    samples[r] = static_cast<double>(r / 8), positions[r] = static_cast<double>(r % 8);
  Stream s;
  const Values y = jittered<double>(s, Values(n, 1.0), C, samples, positions, 7);
  double mean = 0, squares = 0;
  for (const double v : y) {
    const double u = (v - 1) / 0.1;
    ASSERT_LE(std::abs(u), 1);
    mean += u / n;
    squares += u * u / n;
  }
  EXPECT_LE(std::abs(mean), 5 * std::sqrt(1.0 / 3 / n));
  EXPECT_LE(std::abs(squares - 1.0 / 3), 5 * std::sqrt(4.0 / 45 / n));
  for (std::size_t i = 1; i < y.size(); ++i) ASSERT_NE(y[i], y[i - 1]);
  EXPECT_FALSE(same_bits(y, jittered<double>(s, Values(n, 1.0), C, samples, positions, 8)));
}

TEST(Jitter, DependsOnSampleAndPositionAndNotOnTheRow) {
  const Values x = normal_values(4 * 19, 1);
  Stream s;
  const Values whole = jittered<float>(s, x, 19, {3, 3, 9, 9}, {0, 1, 0, 1}, 5);
  const Values last(x.begin() + 3 * 19, x.end());
  EXPECT_TRUE(same_bits(Values(whole.begin() + 3 * 19, whole.end()), jittered<float>(s, last, 19, {9}, {1}, 5)));
  EXPECT_TRUE(same_bits(x, jittered<double>(s, x, 19, {3, 3, 9, 9}, {0, 1, 0, 1}, 5, 0.0))) << "none";
}

TEST(Jitter, IsItsOwnBackward) {
  const Values x = normal_values(60, 1), u = normal_values(60, 2), samples(4, 1.0), positions{0, 1, 2, 3};
  Stream s;
  const Values y = jittered<double>(s, x, 15, samples, positions, 3),
               d = jittered<double>(s, u, 15, samples, positions, 3);
  expect_adjoint(dot(u, y), dot(d, x), norm(u) * norm(y), 60);
}

// ---- balance

template <class A>
struct Balance {
  RouterOptions o;
  int64_t rows, scopes;
  Field<A> scores, d_scores;
  Field<std::int32_t> experts, scope;
  Field<double> partial, table, loss;

  Balance(ScoreKind score, int64_t E, int64_t k, int64_t R, int64_t G)
      : rows(R),
        scopes(G),
        scores(R, E, 2),
        d_scores(R, E, 1),
        experts(R, k, 1),
        scope(1, R),
        partial(router_partial_rows(R) * G, 2 * E + 1),
        table(G, 2 * E + 1, 3),
        loss(1, 1, Values{0.25}) {
    o.experts = E;
    o.chosen = k;
    o.score = score;
    Field<A> logits(R, E, normal_values(R * E, 1)), weights(R, k);
    Stream s;
    router_forward<A>(s, o, logits.view(), View<A, 1>(), weights.view(), experts.view(), scores.view());
    s.synchronize();
    Values of(static_cast<std::size_t>(R));
    for (int64_t r = 0; r < R; ++r) of[r] = static_cast<double>((r * 7 / 3) % (G + 1)) - 1;  // mixed; some of none
    scope.write(of);
  }
  void statistics(Stream& s, int64_t begin, int64_t end) {
    router_statistics<A>(s, o, scores.view().slice(begin, end), experts.view().slice(begin, end),
                         scope.vector().slice(begin, end), partial.view(), table.view());
  }
};

template <class N>
N balance_loss(const RouterOptions& o, const std::vector<std::vector<N>>& scores, const Values& experts,
               const Values& scope, int64_t scopes) {
  const int64_t E = o.experts, k = o.chosen;
  N total = 0.0;
  for (int64_t g = 0; g < scopes; ++g) {
    Values f(static_cast<std::size_t>(E));
    std::vector<N> p(static_cast<std::size_t>(E), N(0.0));
    double n = 0;
    for (std::size_t r = 0; r < scores.size(); ++r) {
      if (scope[r] != static_cast<double>(g)) continue;
      ++n;
      for (int64_t c = 0; c < k; ++c) ++f[static_cast<std::size_t>(experts[r * k + c])];
      N of_row = 1.0;
      if (o.score == ScoreKind::sigmoid) of_row = sum<N>(E, [&](int64_t j) { return scores[r][j]; });
      for (int64_t j = 0; j < E; ++j) p[j] = p[j] + scores[r][j] / of_row;
    }
    for (int64_t j = 0; n > 0 && j < E; ++j)
      total = total + N(static_cast<double>(E) * f[j] / (n * static_cast<double>(k))) * (p[j] / N(n));
  }
  return total;
}

template <class A>
void check_balance(ScoreKind score, int64_t E, int64_t k, int64_t R, int64_t G) {
  Balance<A> b(score, E, k, R, G);
  Stream s(2);
  b.statistics(s, 0, R);
  const Values table = b.table.read(s), experts = b.experts.read(s), scope = b.scope.read(s), in = b.scores.read(s);
  const int64_t n = 2 * E + 1;
  for (int64_t g = 0; g < G; ++g) {
    double rows = 0, pairs = 0, probability = 0;
    for (int64_t r = 0; r < R; ++r) rows += scope[r] == static_cast<double>(g);
    ASSERT_EQ(table[g * n + 2 * E], rows);
    for (int64_t j = 0; j < E; ++j) {
      double count = 0;
      for (int64_t q = 0; q < R * k; ++q)
        count += scope[q / k] == static_cast<double>(g) && experts[q] == static_cast<double>(j);
      ASSERT_EQ(table[g * n + j], count);
      pairs += table[g * n + j];
      probability += table[g * n + E + j];
    }
    EXPECT_EQ(pairs, rows * static_cast<double>(k));
    EXPECT_LE(std::abs(probability - rows), rows * static_cast<double>(E + 8) * roundoff<A>);
  }
  // Two ranks with some of the rows each: their tables sum to the whole one.
  b.statistics(s, 0, R / 3);
  Values split = b.table.read(s);
  b.statistics(s, R / 3, R);
  const Values second = b.table.read(s);
  for (std::size_t i = 0; i < split.size(); ++i)
    ASSERT_LE(std::abs(split[i] + second[i] - table[i]), static_cast<double>(R) * roundoff<double> * table[i]);

  b.table.write(table);
  router_balance_loss(s, b.o, b.table.view(), b.loss.vector());
  const double coefficient = 0.7;
  router_balance_gradient<A>(s, b.o, b.scores.view(), b.table.view(), b.scope.vector(), coefficient, b.d_scores.view());
  std::vector<std::vector<Dual>> along;
  const Values direction = normal_values(R * E, 5);
  for (int64_t r = 0; r < R; ++r) {
    along.emplace_back();
    for (int64_t j = 0; j < E; ++j) along.back().emplace_back(in[r * E + j], in[r * E + j] * direction[r * E + j]);
  }
  const Dual expected = balance_loss(b.o, along, experts, scope, G);
  const double steps = static_cast<double>(R + E * G + 16);
  EXPECT_LE(std::abs(b.loss.read(s)[0] - 0.25 - expected.v), 4 * steps * roundoff<double> * (expected.v + 0.25));
  const Values d = b.d_scores.read(s);
  double along_gradient = 0, magnitude = 0;
  for (std::size_t i = 0; i < d.size(); ++i) {
    along_gradient += d[i] * in[i] * direction[i];
    // Each entry is a difference of means of numbers up to E (counts are shares), by the scores' sum.
    const double rows = scope[i / static_cast<std::size_t>(E)] < 0
                            ? 1.0
                            : table[static_cast<std::size_t>(scope[i / static_cast<std::size_t>(E)]) * n + 2 * E];
    magnitude += coefficient * static_cast<double>(E) / rows * std::abs(direction[i]);
  }
  EXPECT_LE(std::abs(along_gradient - coefficient * expected.d),
            8 * static_cast<double>(E + 16) * roundoff<A> * magnitude);
  for (int64_t r = 0; r < R; ++r)
    for (int64_t j = 0; scope[r] < 0 && j < E; ++j) ASSERT_EQ(d[r * E + j], 0);
}

TEST(RouterBalance, TableLossAndGradient) {
  for (const auto score : {ScoreKind::softmax, ScoreKind::sigmoid}) {
    for (const auto& [E, k, R, G] : {std::array{6, 2, 100, 3}, {1, 1, 7, 1}, {64, 6, 130, 2}, {300, 8, 65, 1}}) {
      SCOPED_TRACE(testing::Message() << E << " " << k << " " << R << " " << G << " " << static_cast<int>(score));
      check_balance<double>(score, E, k, R, G);
      check_balance<float>(score, E, k, R, G);
    }
  }
}

// Where all experts have the same share and probability, the loss of a scope is 1; where one has all, it is E.
TEST(RouterBalance, OneWhereBalancedAndEWhereCollapsed) {
  Balance<double> b(ScoreKind::softmax, 4, 2, 8, 2);
  b.scope.write({0, 0, 0, 0, 0, 0, 0, 0});  // scope 1 has no rows
  b.scores.write(Values(32, 0.25));
  b.experts.write({0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3});
  Stream s;
  b.statistics(s, 0, 8);
  b.loss.write({0});
  router_balance_loss(s, b.o, b.table.view(), b.loss.vector());
  EXPECT_DOUBLE_EQ(b.loss.read(s)[0], 1);
  Balance<double> one(ScoreKind::softmax, 4, 1, 3, 1);
  one.scope.write({0, 0, 0});
  one.scores.write({0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0});
  one.experts.write({1, 1, 1});
  one.statistics(s, 0, 3);
  one.loss.write({0});
  router_balance_loss(s, one.o, one.table.view(), one.loss.vector());
  EXPECT_DOUBLE_EQ(one.loss.read(s)[0], 4);
}

// Filler is in no scope, whatever its own says; a scope of filler alone has no loss and no gradient.
TEST(RouterBalance, FillerIsInNoScope) {
  Balance<float> b(ScoreKind::sigmoid, 6, 2, 100, 3);
  Stream s(2);
  Values experts = b.experts.read(s), scope = b.scope.read(s), none = scope;
  for (std::size_t r = 0; r < 100; ++r)
    if (scope[r] == 2 || r % 3 == 0) experts[2 * r] = experts[2 * r + 1] = none[r] = -1;
  b.scope.write(none);
  b.statistics(s, 0, 100);
  const Values table = b.table.read(s);
  b.experts.write(experts);
  b.scope.write(scope);
  b.statistics(s, 0, 100);
  EXPECT_EQ(b.table.read(s), table);
  EXPECT_EQ(table[2 * 13 + 12], 0);
  EXPECT_GT(table[12], 0);
  router_balance_gradient<float>(s, b.o, b.scores.view(), b.table.view(), b.scope.vector(), 0.1, b.d_scores.view());
  const Values d = b.d_scores.read(s);
  for (std::size_t i = 0; i < d.size(); ++i) {
    ASSERT_TRUE(std::isfinite(d[i]));
    if (scope[i / 6] == 2) {
      ASSERT_EQ(d[i], 0);
    }
  }
}

TEST(RouterBalance, any_number_of_threads_gives_the_same_bits) {
  for (const auto score : {ScoreKind::softmax, ScoreKind::sigmoid})
    expect_same_on_any_threads([&](Stream& s) {
      Balance<float> b(score, 12, 3, 500, 3);
      b.statistics(s, 0, 500);
      router_balance_loss(s, b.o, b.table.view(), b.loss.vector());
      router_balance_gradient<float>(s, b.o, b.scores.view(), b.table.view(), b.scope.vector(), 0.1, b.d_scores.view());
      s.synchronize();
      Values all = b.table.read(s);
      append(all, b.loss.read(s));
      append(all, b.d_scores.read(s));
      return all;
    });
}

TEST(RouterBias, MovesAgainstTheLoad) {
  Field<std::int64_t> counts(1, 3, Values{5, 2, 1});
  Field<double> load(1, 3, Values{1, 0, 1}), bias(1, 3, Values{0.5, 0.5, 0.5});
  Stream s;
  add_counts(s, counts.vector(), load.vector());
  EXPECT_EQ(load.read(s), (Values{6, 2, 2}));
  load.write({4, 6, 5});
  router_bias_update<double>(s, load.vector(), 0.001, bias.vector());
  EXPECT_EQ(bias.read(s), (Values{0.5 + 0.001, 0.5 - 0.001, 0.5}));
}

}  // namespace
}  // namespace forge
