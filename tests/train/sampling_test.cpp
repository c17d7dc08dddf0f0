#include "train/sampling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "../kernels/choice_case.hpp"

namespace forge {
namespace {

std::int32_t sample_token(const std::vector<double>& logits, const SamplingOptions& options, std::int64_t position) {
  Stream stream;
  reference::ChoiceCase<double> device(logits);
  return checked_token(device.choose(stream, choice_of(options, position)), position);
}

const std::vector<double> logits{std::log(0.5), std::log(0.2), std::log(0.2), std::log(0.06), std::log(0.04)};

std::map<std::int32_t, int> counts(const SamplingOptions& options, int draws) {
  std::map<std::int32_t, int> result;
  Stream stream;
  reference::ChoiceCase<double> device(logits);
  for (int i = 0; i < draws; ++i) ++result[device.choose(stream, choice_of(options, i))];
  return result;
}

TEST(Sampling, TemperatureZeroTakesTheLikeliest) {
  EXPECT_EQ(counts({0, 0, 1, 7}, 50), (std::map<std::int32_t, int>{{0, 50}}));
  EXPECT_EQ(sample_token({1, 3, 3, 2}, {0, 0, 1, 0}, 0), 1) << "ties go to the lower id";
}

// Frequencies of n keyed draws lie within five standard deviations, sqrt(p (1 − p) / n).
TEST(Sampling, FrequenciesFollowTheProbabilities) {
  constexpr int n = 20000;
  const double p[] = {0.5, 0.2, 0.2, 0.06, 0.04};
  auto c = counts({1, 0, 1, 3}, n);
  for (int t = 0; t < 5; ++t) EXPECT_NEAR(c[t] / double(n), p[t], 5 * std::sqrt(p[t] * (1 - p[t]) / n));
}

TEST(Sampling, TopKAndTopPCutTheTail) {
  for (const auto& [token, count] : counts({1, 2, 1, 3}, 2000)) EXPECT_LT(token, 2) << count;
  auto nucleus = counts({1, 0, 0.65, 3}, 2000);  // 0.5 < 0.65 <= 0.7: tokens 0 and 1
  EXPECT_EQ(nucleus.size(), 2u);
  EXPECT_NEAR(nucleus[0] / 2000.0, 0.5 / 0.7, 5 * std::sqrt(0.25 / 2000));
  EXPECT_EQ(counts({1, 0, 0.4, 3}, 100).size(), 1u);
}

TEST(Sampling, DrawsAreKeyed) {
  EXPECT_EQ(sample_token(logits, {1, 0, 1, 5}, 17), sample_token(logits, {1, 0, 1, 5}, 17));
  EXPECT_NE(counts({1, 0, 1, 5}, 100), counts({1, 0, 1, 6}, 100));
}

TEST(Sampling, NothingIsDrawnFromNaN) {
  const double nan = std::nan(""), inf = HUGE_VAL;
  for (const auto& bad : {std::vector<double>{0, nan, 1}, {nan, nan}, {inf, 0}, {-inf, -inf}})
    for (const double temperature : {0.0, 1.0}) {
      try {
        sample_token(bad, {temperature, 0, 1, 0}, 3);
        FAIL() << "a token was drawn";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::not_finite);
      }
    }
  EXPECT_EQ(sample_token({-inf, 2, 1}, {0, 0, 1, 0}, 0), 1);
}

}  // namespace
}  // namespace forge
