#include <functional>
#include <limits>
#include <tuple>

#include "core/partials.hpp"
#include "fixture.hpp"
#include "optim/rule.hpp"

namespace forge {
namespace {

using namespace reference;

const std::int64_t sizes[] = {0, 1, 3, 17, 1023, 1024, 4097, 50000};

template <class A>
void check_sums() {
  for (const auto n : sizes) {
    SCOPED_TRACE(n);
    Field<A> x(1, n, normal_values(n, 1));
    Field<double> partial(1, sum_partials), out(1, 2, Values{3, 5});
    const Values xs = x.read();
    using N = Tracked<double>;
    const N plain = N(3.0) + sum<N>(n, [&](std::int64_t i) { return N(xs[i]); });
    const N squares = N(5.0) + sum<N>(n, [&](std::int64_t i) { return N(xs[i]) * N(xs[i]); });
    expect_same_on_any_threads([&](Stream& s) {
      out.write({3, 5});
      sum_into<A>(s, x.vector(), out.vector());
      sum_of_squares<A>(s, x.vector(), partial.vector(), out.vector().slice(1, 2));
      s.synchronize();
      return out.read(s);
    });
    expect_close<double>(out.read(), std::vector<N>{plain, squares}, "sums");
  }
}

TEST(Reductions, sums_in_double) {
  check_sums<double>();
  check_sums<float>();
}

StepScalars finished(StepScalars in, double clip_norm) {
  Buffer memory(sizeof(StepScalars));
  Stream s;
  copy_to_device(s, memory.data(), &in, sizeof in);
  finish_scalars(s, View<StepScalars, 1>(reinterpret_cast<StepScalars*>(memory.data()), {{1}}), clip_norm);
  copy_to_host(s, &in, memory.data(), sizeof in);
  s.synchronize();
  return in;
}

TEST(StepScalars, clip_coefficient_and_finiteness) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  EXPECT_EQ(finished({1, 2, 16, -1, -1}, 0).clip_coefficient, 1);
  EXPECT_EQ(finished({1, 2, 16, -1, -1}, 0).finite, 1);
  EXPECT_DOUBLE_EQ(finished({1, 2, 16, -1, -1}, 1).clip_coefficient, 1 / (4 + 1e-6));
  EXPECT_EQ(finished({1, 2, 16, -1, -1}, 5).clip_coefficient, 1);
  EXPECT_EQ(finished({1, 2, 0, -1, -1}, 5).clip_coefficient, 1);
  for (const double bad : {inf, -inf, nan}) {
    EXPECT_EQ(finished({bad, 2, 16, -1, -1}, 1).finite, 0);
    EXPECT_EQ(finished({1, bad, 16, -1, -1}, 1).finite, 0);
    EXPECT_EQ(finished({1, 2, bad, -1, -1}, 1).finite, 0);
  }
  EXPECT_EQ(finished({1e300, -1e300, 1e300, -1, -1}, 1).finite, 1);
}

// ---- AdamW
// ------------------------------------------------------------------------------------------------------------

constexpr double learning_rate = 3e-3;
const OptimizerDeck adamw_deck;
UpdateRule rule_of(const OptimizerDeck& deck, bool decays) {
  return {learning_rate, decays ? deck.weight_decay : 0};
}

template <class S, class M, class T>
struct Problem {
  std::int64_t n;
  Field<S> g, p;
  Field<M> m, v;
  Field<T> copy;
  Buffer scalars{sizeof(StepScalars)};

  explicit Problem(std::int64_t size)
      : n(size), g(1, n, normal_values(n, 1, 0.01)), p(1, n, normal_values(n, 2)), m(1, n), v(1, n), copy(1, n) {}
  void step(Stream& s, int t, double clip, bool finite, bool copies = true) {
    const StepScalars host{0, 0, 0, clip, finite ? 1.0 : 0.0};
    copy_to_device(s, scalars.data(), &host, sizeof host);
    UpdateArgs<T> run{g.vector(), p.vector(), {}, {}, rule_of(adamw_deck, true)};
    if (copies) run.copy = copy.vector();
    for (const auto* moment : {&m, &v}) run.state.push_back({dtype_of<M>, moment->vector().data});
    const View<const StepScalars, 1> view(reinterpret_cast<StepScalars*>(scalars.data()), {{1}});
    update_run<T>(s, adamw_deck, {t, learning_rate, view}, run);
    s.synchronize();
  }
};

// What is kept in bf16 is one of the two neighbours of the value (tests/optim/rounding_test.cpp says which): less than
// a spacing away, which is at most 2^−7 of it.
template <class M, class S>
void expect_kept(const Values& got, const std::vector<Tracked<S>>& expected, const char* what) {
  if constexpr (std::is_same_v<M, S>) {
    expect_close<M>(got, expected, what);
  } else {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i].v, 1.001 * 0x1p-7 * std::abs(expected[i].v)) << what << " at " << i;
  }
}

// Each update against the textbook's formula, from the state as it was stored before.
template <class S, class M, class T>
void check_adamw() {
  using N = Tracked<S>;
  for (const std::int64_t n : {1, 17, 127, 4096, 5000}) {
    SCOPED_TRACE(n);
    Problem<S, M, T> problem(n);
    Stream s(2);
    const double clip = 0.37;
    for (int t = 1; t <= 4; ++t) {
      problem.g.write(normal_values(n, static_cast<std::uint64_t>(10 + t), 0.01));
      const Values g = problem.g.read(s), p = problem.p.read(s), m = problem.m.read(s), v = problem.v.read(s);
      const OptimizerDeck& how = adamw_deck;
      const double bias1 = 1 - std::pow(how.beta1, t), bias2 = 1 - std::pow(how.beta2, t);
      problem.step(s, t, clip, true);
      std::vector<N> new_p, new_m, new_v;
      for (std::size_t i = 0; i < g.size(); ++i) {
        const N clipped = N(g[i]) * constant<N>(clip);
        // β1 m + (1 − β1) g, which the kernel computes as m + (1 − β1) (g − m)
        new_m.push_back(N(m[i]) + constant<N>(1 - how.beta1) * (clipped - N(m[i])));
        new_v.push_back(constant<N>(how.beta2) * N(v[i]) + constant<N>(1 - how.beta2) * clipped * clipped);
        const N root = sqrt(new_v.back()) / constant<N>(std::sqrt(bias2)) + constant<N>(how.epsilon);
        new_p.push_back(N(p[i]) * constant<N>(1 - learning_rate * how.weight_decay) -
                        constant<N>(learning_rate / bias1) * (new_m.back() / root));
        const double m_textbook = how.beta1 * m[i] + (1 - how.beta1) * clip * g[i];
        const double v_textbook = how.beta2 * v[i] + (1 - how.beta2) * clip * g[i] * clip * g[i];
        const double p_textbook = p[i] * (1 - learning_rate * how.weight_decay) -
                                  learning_rate * (m_textbook / bias1) / (std::sqrt(v_textbook / bias2) + how.epsilon);
        ASSERT_LE(std::abs(p_textbook - new_p.back().v), 32 * roundoff<double> * (std::abs(p[i]) + 1));
      }
      expect_close<S>(problem.p.read(s), new_p, "p");
      expect_kept<M, S>(problem.m.read(s), new_m, "m");
      expect_kept<M, S>(problem.v.read(s), new_v, "v");
      Values copied = problem.p.read(s);
      for (double& x : copied) x = static_cast<double>(T(x));
      EXPECT_TRUE(same_bits(problem.copy.read(s), copied)) << "compute copy";
    }
    const Values p = problem.p.read(s), m = problem.m.read(s), v = problem.v.read(s), c = problem.copy.read(s);
    problem.g.write(Values(static_cast<std::size_t>(n), std::nan("")));
    problem.step(s, 5, std::nan(""), false);
    EXPECT_TRUE(same_bits(p, problem.p.read(s)) && same_bits(m, problem.m.read(s)) && same_bits(v, problem.v.read(s)) &&
                same_bits(c, problem.copy.read(s)))
        << "a step that is not finite changes nothing";
    problem.g.write(normal_values(n, 20));
    problem.step(s, 6, 1, true, false);
    EXPECT_TRUE(same_bits(c, problem.copy.read(s))) << "no copy was asked for";
    EXPECT_FALSE(same_bits(p, problem.p.read(s)));
  }
}

TEST(Adamw, fp64) {
  check_adamw<double, double, double>();
}
TEST(Adamw, fp32) {
  check_adamw<float, float, float>();
}
TEST(Adamw, bf16_copy) {
  check_adamw<float, float, bf16>();
}
TEST(Adamw, bf16_moments) {
  check_adamw<float, bf16, float>();
}
TEST(Adamw, bf16_moments_and_copy) {
  check_adamw<float, bf16, bf16>();
}

// ---- optimizers that keep one number of each weight, against their formulas

// One step in double from (p, kept, g): the new p and kept.
using OneNumberRule = std::function<std::pair<double, double>(double p, double kept, double g, double rate)>;

OptimizerDeck deck_of(OptimizerName name) {
  OptimizerDeck deck;
  deck.name = name;
  deck.beta1 = 0.85;
  deck.beta2 = 0.98;
  deck.momentum = 0.7;
  deck.weight_decay = 0.3;
  return deck;
}

void check_one_number(OptimizerName name, const OneNumberRule& rule) {
  constexpr std::int64_t n = 5000;
  const OptimizerDeck deck = deck_of(name);
  Stream s(2);
  Field<double> g(1, n), p(1, n, normal_values(n, 2)), kept(1, n);
  Field<float> gf(1, n), pf(1, n, normal_values(n, 2)), copyf(1, n);
  Field<bf16> keptf(1, n);
  Buffer scalars(sizeof(StepScalars));
  const View<StepScalars, 1> view(reinterpret_cast<StepScalars*>(scalars.data()), {{1}});
  const double clip = 0.37, rate = 3e-3;
  Values weight = p.read(s), state(n, 0);
  for (int t = 1; t <= 5; ++t) {
    const bool finite = t != 3;
    const StepScalars host{0, 0, 0, clip, finite ? 1.0 : 0.0};
    copy_to_device(s, scalars.data(), &host, sizeof host);
    g.write(normal_values(n, static_cast<std::uint64_t>(30 + t)));
    gf.write(normal_values(n, static_cast<std::uint64_t>(30 + t)));
    UpdateArgs<double> run{g.vector(), p.vector(), {}, {}, rule_of(deck, t != 4)};
    run.state.push_back({DType::f64, kept.vector().data});
    update_run<double>(s, deck, {t, rate, view}, run);
    UpdateArgs<float> low{gf.vector(), pf.vector(), {}, {}, rule_of(deck, t != 4)};
    low.state.push_back({DType::bf16, keptf.vector().data});
    update_run<float>(s, deck, {t, rate, view}, low);
    s.synchronize();
    const Values gradient = g.read(s), got = p.read(s), got_state = kept.read(s), in_fp32 = pf.read(s);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      if (finite) {
        const double decayed = t != 4 ? weight[i] * (1 - rate * deck.weight_decay) : weight[i];
        std::tie(weight[i], state[i]) = rule(decayed, state[i], clip * gradient[i], rate);
      }
      ASSERT_NEAR(got[i], weight[i], 1e-15 * (1 + std::abs(weight[i]))) << t;
      ASSERT_NEAR(got_state[i], state[i], 1e-15 * (1 + std::abs(state[i]))) << t;
      ASSERT_NEAR(in_fp32[i], weight[i], t * rate * 2) << t;
    }
  }
}

TEST(Lion, IsTheFormula) {
  check_one_number(OptimizerName::lion, [](double p, double m, double g, double rate) {
    const double c = 0.85 * m + 0.15 * g;
    return std::pair(p - rate * (c > 0 ? 1 : c < 0 ? -1 : 0), 0.98 * m + 0.02 * g);
  });
}

TEST(Sgd, IsTheFormula) {
  check_one_number(OptimizerName::sgd, [](double p, double b, double g, double rate) {
    return std::pair(p - rate * (0.7 * b + g), 0.7 * b + g);
  });
}

// Against the method as it is published, which keeps z: y, z and x of ten updates, three of them of warm-up.
TEST(ScheduleFree, IsTheMethod) {
  constexpr std::int64_t n = 3000;
  for (const std::int64_t warmup : {0, 3}) {
    OptimizerDeck deck = deck_of(OptimizerName::schedule_free);
    deck.warmup_steps = warmup;
    Stream s(2);
    Field<double> g(1, n), p(1, n, normal_values(n, 2)), v(1, n), d(1, n), average(1, n);
    Buffer scalars(sizeof(StepScalars));
    const View<StepScalars, 1> view(reinterpret_cast<StepScalars*>(scalars.data()), {{1}});
    const StepScalars host{0, 0, 0, 1, 1};
    copy_to_device(s, scalars.data(), &host, sizeof host);
    Values y = p.read(s), z = y, x = y, second(n, 0);
    double weights = 0;
    for (int t = 1; t <= 10; ++t) {
      const double rate = 3e-2 * (t < warmup ? static_cast<double>(t) / static_cast<double>(warmup) : 1);
      g.write(normal_values(n, static_cast<std::uint64_t>(30 + t)));
      UpdateArgs<double> run{g.vector(), p.vector(), {}, {}, rule_of(deck, true)};
      run.state.push_back({DType::f64, v.vector().data});
      run.state.push_back({DType::f64, d.vector().data});
      update_run<double>(s, deck, {t, rate, view}, run);
      schedule_free_averages<double>(s, deck, p.vector(), d.vector(), average.vector());
      const Values gradient = g.read(s), got = p.read(s), used = average.read(s);
      weights += rate * rate;
      const double c = rate * rate / weights;
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        second[i] = 0.98 * second[i] + 0.02 * gradient[i] * gradient[i];
        const double root = std::sqrt(second[i] / (1 - std::pow(0.98, t))) + deck.epsilon;
        z[i] -= rate * (gradient[i] / root + 0.3 * y[i]);
        x[i] = (1 - c) * x[i] + c * z[i];
        y[i] = 0.15 * z[i] + 0.85 * x[i];
        ASSERT_NEAR(got[i], y[i], 1e-14 * (1 + std::abs(y[i]))) << t;
        ASSERT_NEAR(used[i], x[i], 1e-14 * (1 + std::abs(x[i]))) << t;
      }
    }
  }
}

// What a rank does of Muon: what its owner gets, and the update with what comes back.
TEST(Muon, IsTheFormula) {
  constexpr std::int64_t n = 5000;
  OptimizerDeck deck = deck_of(OptimizerName::muon);
  Stream s(2);
  Field<double> g(1, n), p(1, n, normal_values(n, 2)), b(1, n), u(1, n);
  Buffer scalars(sizeof(StepScalars));
  const View<StepScalars, 1> view(reinterpret_cast<StepScalars*>(scalars.data()), {{1}});
  const double clip = 0.37, rate = 3e-3, scale = 1.7;
  Values weight = p.read(s), momentum(n, 0);
  for (int t = 1; t <= 5; ++t) {
    const bool finite = t != 3;
    const StepScalars host{0, 0, 0, clip, finite ? 1.0 : 0.0};
    copy_to_device(s, scalars.data(), &host, sizeof host);
    g.write(finite ? normal_values(n, static_cast<std::uint64_t>(30 + t)) : Values(n, std::nan("")));
    UpdateArgs<double> run{g.vector(), p.vector(), {}, {}, rule_of(deck, t != 4)};
    run.state.push_back({DType::f64, b.vector().data});
    muon_prepare<double>(s, deck, {t, rate, view}, run, u.vector());
    const Values gradient = g.read(s), sent = u.read(s), kept = b.read(s);
    const Values result = normal_values(n, static_cast<std::uint64_t>(60 + t));
    u.write(result);
    muon_apply<double>(s, deck, {t, rate, view}, run, u.vector(), scale);
    const Values got = p.read(s);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double clipped = clip * gradient[i];
      if (finite) momentum[i] = 0.95 * momentum[i] + 0.05 * clipped;
      if (finite) weight[i] = weight[i] * (t != 4 ? 1 - rate * 0.3 : 1) - rate * scale * result[i];
      ASSERT_NEAR(kept[i], momentum[i], 1e-15 * (1 + std::abs(momentum[i]))) << t;
      ASSERT_NEAR(sent[i], finite ? 0.05 * clipped + 0.95 * momentum[i] : 0, 1e-15) << t;
      ASSERT_NEAR(got[i], weight[i], 2e-15 * (1 + std::abs(weight[i]))) << t;
    }
  }
}

// Padding between segments holds zeros and must stay zero.
TEST(Adamw, zero_stays_zero) {
  Problem<float, float, bf16> problem(100);
  problem.g.write(Values(100, 0.0));
  problem.p.write(Values(100, 0.0));
  Stream s;
  problem.step(s, 1, 1, true);
  for (const auto* field : {&problem.p, &problem.m, &problem.v})
    for (const double x : field->read(s)) EXPECT_EQ(x, 0);
}

TEST(Adamw, any_number_of_threads_gives_the_same_bits) {
  expect_same_on_any_threads([&](Stream& s) {
    Problem<float, bf16, bf16> problem(20000);
    for (int t = 1; t <= 3; ++t) problem.step(s, t, 1, true);
    Values all = problem.p.read(s);
    append(all, problem.m.read(s));
    append(all, problem.v.read(s));
    append(all, problem.copy.read(s));
    return all;
  });
}

}  // namespace
}  // namespace forge
