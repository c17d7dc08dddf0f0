#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "fixture.hpp"
#include "kernels/experts/expert_kernels.hpp"

// The router against plain loops: the choice exactly, numbers within the rounding of their reference.

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

constexpr ScoreKind all_scores[] = {ScoreKind::softmax, ScoreKind::softmax_after, ScoreKind::sigmoid};

std::vector<RouterOptions> options_to_test() {
  std::vector<RouterOptions> all;
  for (const auto score : all_scores)
    for (const bool renormalise : {false, true})
      for (const auto& [experts, chosen] : {std::pair{1, 1}, {3, 2}, {8, 8}, {17, 4}, {64, 6}, {300, 8}})
        all.push_back({experts, chosen, score, renormalise, renormalise ? 2.5 : 1.0, 1, 1, GroupScoreKind::top2_sum});
  for (const auto score : all_scores)
    for (const auto group_score : {GroupScoreKind::max, GroupScoreKind::top2_sum}) {
      all.push_back({12, 3, score, true, 1.0, 3, 2, group_score});
      all.push_back({256, 8, score, true, 2.5, 8, 4, group_score});
      all.push_back({64, 2, score, false, 16.0, 32, 1, group_score});
    }
  return all;
}

std::string name(const RouterOptions& o) {
  return std::to_string(o.experts) + " choose " + std::to_string(o.chosen) + ", score " +
         std::to_string(static_cast<int>(o.score)) + ", renormalise " + std::to_string(o.renormalise) + ", groups " +
         std::to_string(o.groups_used) + " of " + std::to_string(o.groups);
}

// Logits of rows; every third row has few different values, so that there are ties.
Values logits_of(int64_t rows, int64_t experts, std::uint64_t key) {
  Values v = normal_values(rows * experts, key, 2);
  for (int64_t r = 0; r < rows; r += 3)
    for (int64_t j = 0; j < experts; ++j) {
      double& x = v[static_cast<std::size_t>(r * experts + j)];
      x = std::round(x);
    }
  return v;
}

template <class A>
struct RouterRun {
  RouterOptions o;
  int64_t rows;
  Field<A> logits, bias, weights, scores, d_weights, d_scores, d_logits;
  Field<std::int32_t> experts;
  bool biased;

  RouterRun(RouterOptions options, int64_t R, bool with_bias, std::uint64_t key = 1)
      : o(options),
        rows(R),
        logits(R, o.experts, logits_of(R, o.experts, key), 3),
        bias(1, o.experts, normal_values(o.experts, key + 1, 0.5)),
        weights(R, o.chosen, 1),
        scores(R, o.experts, 2),
        d_weights(R, o.chosen, normal_values(R * o.chosen, key + 2), 2),
        d_scores(R, o.experts, normal_values(R * o.experts, key + 3), 1),
        d_logits(R, o.experts, 5),
        experts(R, o.chosen, 1),
        biased(with_bias) {}

  void forward(Stream& s) {
    router_forward<A>(s, o, logits.view(), biased ? bias.vector() : View<A, 1>(), weights.view(), experts.view(),
                      scores.view());
  }
  void backward(Stream& s, bool with_scores) {
    router_backward<A>(s, o, logits.view(), scores.view(), experts.view(), d_weights.view(),
                       with_scores ? d_scores.view() : View<A, 2>(), d_logits.view());
  }
};

// The choice by sorting, in the arithmetic of A.
template <class A>
std::vector<int64_t> choice(const RouterOptions& o, const double* base, const double* bias) {
  std::vector<A> key(static_cast<std::size_t>(o.experts));
  for (int64_t j = 0; j < o.experts; ++j) key[j] = static_cast<A>(base[j]) + (bias ? static_cast<A>(bias[j]) : A(0));
  const int64_t size = o.experts / o.groups;
  std::vector<A> worth;
  for (int64_t g = 0; g < o.groups; ++g) {
    std::vector<A> of_group(key.begin() + g * size, key.begin() + (g + 1) * size);
    std::sort(of_group.rbegin(), of_group.rend());
    worth.push_back(o.group_score == GroupScoreKind::max || size < 2 ? of_group[0] : of_group[0] + of_group[1]);
  }
  std::vector<int64_t> groups(static_cast<std::size_t>(o.groups)), order(static_cast<std::size_t>(o.experts));
  std::iota(groups.begin(), groups.end(), 0);
  std::stable_sort(groups.begin(), groups.end(), [&](int64_t a, int64_t b) { return worth[a] > worth[b]; });
  groups.resize(static_cast<std::size_t>(o.groups_used));
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int64_t j) { return std::find(groups.begin(), groups.end(), j / size) == groups.end(); });
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key[a] > key[b]; });
  order.resize(static_cast<std::size_t>(o.chosen));
  return order;
}

template <class N>
std::vector<N> scores_of(const RouterOptions& o, const std::vector<N>& x) {
  std::vector<N> s(x.size());
  if (o.score == ScoreKind::sigmoid) {
    for (std::size_t j = 0; j < x.size(); ++j) s[j] = N(1.0) / (N(1.0) + exp(N(0.0) - x[j]));
    return s;
  }
  double largest = value(x[0]);
  for (const N& v : x) largest = std::max(largest, value(v));
  const N total = sum<N>(static_cast<int64_t>(x.size()), [&](int64_t j) { return exp(x[j] - N(largest)); });
  for (std::size_t j = 0; j < x.size(); ++j) s[j] = exp(x[j] - N(largest)) / total;
  return s;
}

template <class N>
std::vector<N> weights_of(const RouterOptions& o, const std::vector<N>& x, const std::vector<N>& s,
                          const double* experts) {
  std::vector<N> chosen;
  for (int64_t i = 0; i < o.chosen; ++i)
    chosen.push_back(o.score == ScoreKind::softmax_after ? x[static_cast<std::size_t>(experts[i])]
                                                         : s[static_cast<std::size_t>(experts[i])]);
  if (o.score == ScoreKind::softmax_after) {
    chosen = scores_of<N>(o, chosen);
  } else if (o.renormalise) {
    N total = sum<N>(o.chosen, [&](int64_t i) { return chosen[i]; });
    if (o.score == ScoreKind::sigmoid) total = total + constant<N>(1e-20);
    for (N& w : chosen) w = w / total;
  }
  for (N& w : chosen) w = w * constant<N>(o.scale);
  return chosen;
}

template <class A>
void check_forward(const RouterOptions& o, bool biased) {
  using N = Tracked<A>;
  const int64_t R = 7, E = o.experts, k = o.chosen;
  RouterRun<A> run(o, R, biased);
  Stream s(2);
  run.forward(s);
  const Values x = run.logits.read(s), experts = run.experts.read(s), b = run.bias.read(s), stored = run.scores.read(s);
  std::vector<N> scores, weights;
  for (int64_t r = 0; r < R; ++r) {
    const double* base = o.score == ScoreKind::softmax_after ? &x[r * E] : &stored[r * E];
    const auto expected = choice<A>(o, base, biased ? b.data() : nullptr);
    for (int64_t i = 0; i < k; ++i) ASSERT_EQ(experts[r * k + i], expected[i]) << "row " << r << ", choice " << i;
    const std::vector<N> row(x.begin() + r * E, x.begin() + (r + 1) * E), of_row = scores_of<N>(o, row);
    const auto w = weights_of<N>(o, row, of_row, &experts[r * k]);
    scores.insert(scores.end(), of_row.begin(), of_row.end());
    weights.insert(weights.end(), w.begin(), w.end());
  }
  expect_close<A>(stored, scores, "scores");
  expect_close<A>(run.weights.read(s), weights, "weights");
  const Values before = run.weights.read(s);
  run.weights.write(Values(before.size(), 7.0));
  run.scores.write(Values(stored.size(), 7.0));
  router_weights<A>(s, o, run.logits.view(), run.experts.view(), run.weights.view(), run.scores.view());
  EXPECT_TRUE(same_bits(run.weights.read(s), before) && same_bits(run.scores.read(s), stored)) << "replayed choice";
}

// d_logits from the stored scores by the formulas, for the bound of its rounding.
template <class N>
std::vector<N> backward_of(const RouterOptions& o, const std::vector<N>& x, const std::vector<N>& s,
                           const double* experts, const double* g, const double* more) {
  const int64_t E = o.experts, k = o.chosen;
  const N scale = constant<N>(o.scale);
  std::vector<N> d(s.size(), N(0.0)), p(static_cast<std::size_t>(k));
  if (more)
    for (int64_t j = 0; j < E; ++j) d[j] = N(more[j]);
  RouterOptions plain = o;
  plain.scale = 1;
  const auto w = weights_of<N>(plain, x, s, experts);
  const bool sums_to_one = o.renormalise || o.score == ScoreKind::softmax_after;
  const N mean = sums_to_one ? sum<N>(k, [&](int64_t i) { return N(g[i]) * w[i]; }) : N(0.0);
  if (o.score != ScoreKind::softmax_after) {
    N total = 1.0;
    if (o.renormalise) total = sum<N>(k, [&](int64_t i) { return s[static_cast<std::size_t>(experts[i])]; });
    for (int64_t i = 0; i < k; ++i) {
      N& to = d[static_cast<std::size_t>(experts[i])];
      to = to + scale * (N(g[i]) - mean) / total;
    }
  }
  if (o.score == ScoreKind::sigmoid) {
    for (int64_t j = 0; j < E; ++j) d[j] = d[j] * (s[j] * (N(1.0) - s[j]));
    return d;
  }
  const N dot = sum<N>(E, [&](int64_t j) { return d[j] * s[j]; });
  for (int64_t j = 0; j < E; ++j) d[j] = s[j] * (d[j] - dot);
  if (o.score == ScoreKind::softmax_after)
    for (int64_t i = 0; i < k; ++i) {
      N& to = d[static_cast<std::size_t>(experts[i])];
      to = to + scale * w[i] * (N(g[i]) - mean);
    }
  return d;
}

template <class A>
void check_backward(const RouterOptions& o, bool with_scores) {
  using N = Tracked<A>;
  const int64_t R = 5, E = o.experts, k = o.chosen;
  RouterRun<A> run(o, R, true);
  Stream s(2);
  run.forward(s);
  run.backward(s, with_scores);
  const Values x = run.logits.read(s), stored = run.scores.read(s), experts = run.experts.read(s),
               g = run.d_weights.read(s), more = run.d_scores.read(s), results = run.d_logits.read(s);
  const Values direction = normal_values(R * E, 9);
  std::vector<N> expected;
  double u_jv = 0, jtu_v = dot(results, direction), magnitude = 0;
  for (int64_t r = 0; r < R; ++r) {
    const double* extra = with_scores ? &more[r * E] : nullptr;
    const std::vector<N> row(x.begin() + r * E, x.begin() + (r + 1) * E),
        of_row(stored.begin() + r * E, stored.begin() + (r + 1) * E);
    const auto d = backward_of<N>(o, row, of_row, &experts[r * k], &g[r * k], extra);
    expected.insert(expected.end(), d.begin(), d.end());
    std::vector<Dual> along;
    for (int64_t j = 0; j < E; ++j) along.emplace_back(x[r * E + j], direction[r * E + j]);
    const auto scores = scores_of<Dual>(o, along);
    const auto weights = weights_of<Dual>(o, along, scores, &experts[r * k]);
    for (int64_t i = 0; i < k; ++i) u_jv += g[r * k + i] * weights[i].d;
    for (int64_t j = 0; extra && j < E; ++j) u_jv += extra[j] * scores[j].d;
    for (int64_t j = 0; j < E; ++j) magnitude += std::abs(d[j].v * direction[r * E + j]);
    for (int64_t i = 0; i < k; ++i) magnitude += std::abs(g[r * k + i]) * (std::abs(weights[i].d) + o.scale);
    for (int64_t j = 0; extra && j < E; ++j) magnitude += std::abs(extra[j]) * (std::abs(scores[j].d) + 1);
  }
  expect_close<A>(results, expected, "d_logits");
  if constexpr (std::is_same_v<A, double>) expect_adjoint(u_jv, jtu_v, magnitude, E);
  if (!with_scores) return;
  router_backward<A>(s, o, run.logits.view(), run.scores.view(), run.experts.view(), run.d_weights.view(),
                     run.d_scores.view(), run.d_scores.view());
  EXPECT_TRUE(same_bits(run.d_scores.read(s), results)) << "d_logits over d_scores";
}

template <class A>
void check_all() {
  for (const auto& o : options_to_test()) {
    SCOPED_TRACE(name(o));
    for (const bool biased : {false, true}) check_forward<A>(o, biased);
    for (const bool with_scores : {false, true}) check_backward<A>(o, with_scores);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Router, fp64) {
  check_all<double>();
}
TEST(Router, fp32) {
  check_all<float>();
}

TEST(Router, BiasChoosesButDoesNotWeigh) {
  for (const auto score : all_scores) {
    RouterRun<double> run({4, 2, score, false, 1.0, 1, 1, GroupScoreKind::max}, 1, true);
    run.logits.write({1, 0, -1, 2});
    run.bias.write({0, 10, 10, 0});
    Stream s;
    run.forward(s);
    EXPECT_EQ(run.experts.read(s), (Values{1, 2}));
    const double sum = std::exp(1.0) + 1 + std::exp(-1.0) + std::exp(2.0);
    const double first = score == ScoreKind::sigmoid   ? 0.5
                         : score == ScoreKind::softmax ? 1 / sum
                                                       : 1 / (1 + std::exp(-1.0));
    EXPECT_NEAR(run.weights.read(s)[0], first, 4 * roundoff<double>);
  }
}

TEST(Router, NanAndInfinityGiveLegalExperts) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (auto o : {RouterOptions{8, 3, ScoreKind::softmax, true, 1.0, 1, 1, GroupScoreKind::max},
                 RouterOptions{8, 3, ScoreKind::softmax_after, true, 1.0, 4, 2, GroupScoreKind::top2_sum},
                 RouterOptions{8, 3, ScoreKind::sigmoid, true, 1.0, 4, 2, GroupScoreKind::top2_sum}}) {
    RouterRun<float> run(o, 5, false);
    Values x(40, 0.5);
    x[3] = nan;
    for (std::size_t j = 8; j < 16; ++j) x[j] = nan;
    for (std::size_t j = 16; j < 24; ++j) x[j] = -inf;
    for (std::size_t j = 24; j < 32; ++j) x[j] = inf;
    x[33] = inf;
    run.logits.write(x);
    Stream s;
    run.forward(s);
    const Values experts = run.experts.read(s), weights = run.weights.read(s);
    for (std::size_t r = 0; r < 5; ++r)
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(experts[r * 3 + i] >= 0 && experts[r * 3 + i] < 8);
        for (std::size_t j = 0; j < i; ++j) EXPECT_NE(experts[r * 3 + i], experts[r * 3 + j]);
      }
    EXPECT_TRUE(std::isnan(weights[3])) << "a row of NaN";
  }
}

TEST(Router, ImpossibleOptionsAreRefused) {
  const auto refused = [](RouterOptions o) {
    Field<double> x(1, 12), weights(1, 12), scores(1, 12);
    Field<std::int32_t> experts(1, 12);
    Stream s;
    EXPECT_THROW(
        router_forward<double>(s, o, x.view(), View<double, 1>(), weights.view(), experts.view(), scores.view()), Error)
        << name(o);
  };
  const auto softmax = ScoreKind::softmax;
  refused({12, 0, softmax, false, 1.0, 1, 1, GroupScoreKind::max});
  refused({12, 13, softmax, false, 1.0, 1, 1, GroupScoreKind::max});
  refused({12, 2, softmax, false, 1.0, 5, 1, GroupScoreKind::max});
  refused({12, 2, softmax, false, 1.0, 3, 4, GroupScoreKind::max});
  refused({12, 5, softmax, false, 1.0, 3, 1, GroupScoreKind::max});
  refused({12, 2, softmax, false, 1.0, 12, 3, GroupScoreKind::top2_sum});
}

TEST(Router, any_number_of_threads_gives_the_same_bits) {
  for (const auto score : all_scores)
    expect_same_on_any_threads([&](Stream& s) {
      RouterRun<float> run({24, 4, score, true, 1.5, 4, 2, GroupScoreKind::top2_sum}, 101, true);
      run.forward(s);
      run.backward(s, true);
      s.synchronize();
      Values all = run.weights.read(s);
      append(all, run.scores.read(s));
      append(all, run.experts.read(s));
      append(all, run.d_logits.read(s));
      return all;
    });
}

// Every third row is filler: it has no expert, and the others are as without it.
template <class A>
void check_filler(const RouterOptions& o) {
  const int64_t R = 40;
  Values of;
  for (int64_t r = 0; r < R; ++r) of.push_back(r % 3 == 1 ? -1.0 : static_cast<double>(r));
  RouterRun<A> all(o, R, true), some(o, R, true);
  Field<std::int64_t> samples(1, R, of);
  Stream s(2);
  all.forward(s);
  all.backward(s, true);
  router_forward<A>(s, o, some.logits.view(), some.bias.vector(), some.weights.view(), some.experts.view(),
                    some.scores.view(), samples.vector());
  some.backward(s, true);
  const auto compare = [&](const auto& a, const auto& b, double of_filler) {
    const Values with = a.read(s), without = b.read(s);
    const std::size_t n = with.size() / of.size();
    for (std::size_t i = 0; i < with.size(); ++i)
      ASSERT_EQ(with[i], of[i / n] < 0 ? of_filler : without[i]) << name(o) << ", row " << i / n;
  };
  compare(some.experts, all.experts, -1);
  compare(some.weights, all.weights, 0);
  compare(some.scores, all.scores, 0);
  compare(some.d_logits, all.d_logits, 0);
  const Values weights = some.weights.read(s), scores = some.scores.read(s);
  router_weights<A>(s, o, some.logits.view(), some.experts.view(), some.weights.view(), some.scores.view());
  EXPECT_EQ(some.weights.read(s), weights);
  EXPECT_EQ(some.scores.read(s), scores);
}

TEST(Router, FillerHasNoExpert) {
  for (const auto score : all_scores)
    for (const bool renormalise : {false, true}) {
      check_filler<double>({17, 4, score, renormalise, 2.5, 1, 1, GroupScoreKind::top2_sum});
      check_filler<float>({300, 8, score, renormalise, 1.0, 3, 2, GroupScoreKind::max});
    }
  Field<std::int32_t> positions(1, 3, Values{0, 1, 2}), experts(3, 2);
  Field<std::int64_t> samples(1, 3, Values{7, -1, 7});
  Stream s;
  balanced_experts(s, {.experts = 4}, positions.vector(), experts.view(), samples.vector());
  EXPECT_EQ(experts.read(s), (Values{0, 2, -1, -1, 2, 0}));
}

}  // namespace
}  // namespace forge
