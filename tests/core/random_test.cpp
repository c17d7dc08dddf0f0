#include "core/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

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
