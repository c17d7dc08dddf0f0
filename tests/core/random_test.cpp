#include "core/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <set>

#include "core/normal.hpp"

namespace forge {
namespace {

// Known answers of Philox-4x32-10 (Salmon et al.'s Random123, kat_vectors).
TEST(Philox, known_answers) {
  struct Answer {
    Array<std::uint32_t, 4> counter;
    std::uint64_t key;
    Array<std::uint32_t, 4> result;
  };
  const Answer answers[] = {
      {{{0, 0, 0, 0}}, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
       0xffffffffffffffffull,
       {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       0x299f31d0a4093822ull,
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
  };
  for (const Answer& a : answers) EXPECT_TRUE(philox(a.counter, a.key) == a.result);
}

TEST(Philox, two_counters_of_64_bits) {
  EXPECT_TRUE(philox(7, 0x100000002ull, 0x300000004ull) == philox(Array<std::uint32_t, 4>{{2, 1, 4, 3}}, 7));
}

TEST(Uniform, stays_inside_the_open_interval) {
  EXPECT_GT(uniform(0, 0), 0);
  EXPECT_LT(uniform(0xffffffffu, 0xffffffffu), 1);
  EXPECT_NEAR(uniform(0x80000000u, 0), 0.5, 1e-15);
}

// Mean, variance and fourth moment of n normal numbers within six standard deviations of their estimators.
TEST(Normal, has_the_moments_of_the_distribution) {
  const int n = 200000;
  double m1 = 0, m2 = 0, m4 = 0;
  for (int i = 0; i < n; ++i) {
    const double x = normal(42, static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    m1 += x / n;
    m2 += x * x / n;
    m4 += x * x * x * x / n;
  }
  EXPECT_LE(std::abs(m1), 6 * std::sqrt(1.0 / n));
  EXPECT_LE(std::abs(m2 - 1), 6 * std::sqrt(2.0 / n));
  EXPECT_LE(std::abs(m4 - 3), 6 * std::sqrt(96.0 / n));
}

// Against the formula in long double. The bits are those of sums and products in IEEE's double, with any compiler.
TEST(Normal, is_the_transform_of_box_and_muller) {
  for (int i = 0; i < 100000; ++i) {
    const auto w = philox(77, static_cast<std::uint64_t>(i), 0);
    const long double u = uniform(w[0], w[1]), v = uniform(w[2], w[3]), turn = 2 * std::acos(-1.0L);
    const long double exact = std::sqrt(-2 * std::log(u)) * std::sin(turn * (std::abs(v - 0.5L) - 0.25L));
    ASSERT_LE(std::abs(normal(77, static_cast<std::uint64_t>(i)) - exact), 1e-15L * std::abs(exact)) << i;
  }
  const double bits[] = {0x1.c5e30047aa1d7p-1, -0x1.40bc8bc52b07p-3, -0x1.f9f57c1b69dfbp-2, -0x1.5c1ac2af49653p-1};
  for (std::size_t i = 0; i < std::size(bits); ++i) EXPECT_EQ(normal(42, i), bits[i]);
}

// Near 1, where its logarithm vanishes, and the smallest that is drawn.
TEST(Normal, logarithms_and_sines_are_exact_to_their_last_place) {
  for (int i = 1; i <= 53; ++i)
    for (const double x : {1 - std::ldexp(1.0, -i), std::ldexp(1.0, -i), std::ldexp(1.999, -i), 0.7071067811865475})
      EXPECT_LE(std::abs(normal_detail::logarithm(x) - std::log(static_cast<long double>(x))),
                2.3e-16L * std::abs(std::log(static_cast<long double>(x))))
          << x;
  for (int i = -1000; i <= 1000; ++i) {
    const double x = i * 0.00157;
    EXPECT_LE(std::abs(normal_detail::sine(x) - std::sin(static_cast<long double>(x))), 2.5e-16 * std::abs(x)) << x;
  }
}

TEST(RandomKey, differs_in_every_argument) {
  std::set<std::uint64_t> keys;
  for (const std::uint64_t seed : {0, 1, 2})
    for (const Purpose purpose : {Purpose::initial_values, Purpose::sample_order, Purpose::dropout, Purpose::jitter,
                                  Purpose::rounding, Purpose::sampling})
      for (std::uint64_t a = 0; a < 5; ++a)
        for (std::uint64_t b = 0; b < 5; ++b) keys.insert(random_key(seed, purpose, a, b));
  EXPECT_EQ(keys.size(), 3u * 6 * 5 * 5);
}

TEST(HashOf, is_fnv_1a) {
  EXPECT_EQ(hash_of(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(hash_of("a"), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(hash_of("foobar"), 0x85944171f73967e8ull);
}

}  // namespace
}  // namespace forge
