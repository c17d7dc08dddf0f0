#include "optim/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace forge {
namespace {

OptimizerDeck deck_of(RateSchedule schedule) {
  OptimizerDeck d;
  d.learning_rate = 2;
  d.schedule = schedule;
  d.warmup_steps = 4;
  d.decay_steps = 8;
  d.min_ratio = 0.25;
  return d;
}

constexpr RateSchedule all[] = {RateSchedule::constant, RateSchedule::linear,       RateSchedule::cosine,
                                RateSchedule::wsd,      RateSchedule::inverse_sqrt, RateSchedule::rex};

TEST(LearningRate, WarmsUpLinearly) {
  for (const auto schedule : all)
    for (int s = 1; s <= 4; ++s) EXPECT_DOUBLE_EQ(learning_rate(deck_of(schedule), 12, s), 2.0 * s / 4);
}

TEST(LearningRate, StartsAtTheFullRateWithoutWarmUp) {
  for (const auto schedule : {RateSchedule::constant, RateSchedule::inverse_sqrt}) {
    OptimizerDeck d = deck_of(schedule);
    d.warmup_steps = 0;
    EXPECT_DOUBLE_EQ(learning_rate(d, 12, 1), 2);
  }
}

TEST(LearningRate, EndsAtTheFloor) {
  for (const auto schedule : {RateSchedule::linear, RateSchedule::cosine, RateSchedule::wsd, RateSchedule::rex})
    for (const std::int64_t s : {12, 13, 1000})
      EXPECT_DOUBLE_EQ(learning_rate(deck_of(schedule), 12, s), 0.5) << static_cast<int>(schedule);
}

TEST(LearningRate, HalfWay) {
  EXPECT_DOUBLE_EQ(learning_rate(deck_of(RateSchedule::linear), 12, 8), 2 * (0.25 + 0.75 * 0.5));
  EXPECT_DOUBLE_EQ(learning_rate(deck_of(RateSchedule::cosine), 12, 8), 2 * (0.25 + 0.75 * 0.5));
  EXPECT_DOUBLE_EQ(learning_rate(deck_of(RateSchedule::rex), 12, 8), 2 * (0.25 + 0.75 * (0.5 / 0.75)));
  EXPECT_DOUBLE_EQ(learning_rate(deck_of(RateSchedule::inverse_sqrt), 12, 16), 1);
  EXPECT_DOUBLE_EQ(learning_rate(deck_of(RateSchedule::constant), 12, 8), 2);
}

TEST(LearningRate, WsdIsStableUntilItsTail) {
  OptimizerDeck d = deck_of(RateSchedule::wsd);
  for (std::int64_t s = 4; s <= 92; ++s) EXPECT_DOUBLE_EQ(learning_rate(d, 100, s), 2);
  EXPECT_DOUBLE_EQ(learning_rate(d, 100, 96), 2 * (0.25 + 0.75 * 0.5));
  d.wsd_tail = WsdTail::cosine;
  EXPECT_DOUBLE_EQ(learning_rate(d, 100, 96), 2 * (0.25 + 0.75 * 0.5));
  d.wsd_tail = WsdTail::sqrt;
  EXPECT_DOUBLE_EQ(learning_rate(d, 100, 94), 2 * (0.25 + 0.75 * (1 - std::sqrt(0.25))));
}

TEST(LearningRate, WsdOfARunThatIsCutShortDecaysBehindItsWarmUp) {
  OptimizerDeck d = deck_of(RateSchedule::wsd);
  d.decay_steps = 1000;
  for (std::int64_t s = 1; s <= 4; ++s) EXPECT_DOUBLE_EQ(learning_rate(d, 12, s), 2.0 * s / 4);
  for (std::int64_t s = 4; s <= 12; ++s)
    EXPECT_DOUBLE_EQ(learning_rate(d, 12, s), learning_rate(deck_of(RateSchedule::wsd), 12, s));
}

TEST(LearningRate, RestartsAtTheFullRate) {
  OptimizerDeck d = deck_of(RateSchedule::cosine_restarts);
  for (std::int64_t s = 5; s < 12; ++s)
    EXPECT_DOUBLE_EQ(learning_rate(d, 100, s), learning_rate(deck_of(RateSchedule::cosine), 100, s));
  for (std::int64_t s = 5; s < 50; ++s) EXPECT_DOUBLE_EQ(learning_rate(d, 100, s + 8), learning_rate(d, 100, s));
  d.restart_factor = 2;  // periods of 8, 16, 32 steps from 4, 12, 28 on
  for (const std::int64_t s : {12, 28, 60}) EXPECT_DOUBLE_EQ(learning_rate(d, 100, s), 2);
  EXPECT_DOUBLE_EQ(learning_rate(d, 100, 20), 2 * (0.25 + 0.75 * 0.5));
  EXPECT_DOUBLE_EQ(learning_rate(d, 100, 44), 2 * (0.25 + 0.75 * 0.5));
}

TEST(LearningRate, FollowsItsPoints) {
  OptimizerDeck d = deck_of(RateSchedule::piecewise);
  d.rate_points = "10:1, 20:0.5 ,40: 0";
  EXPECT_DOUBLE_EQ(learning_rate(d, 100, 2), 1);  // warm-up
  for (const auto& [step, rate] : {std::pair{5, 2.0}, {10, 2.0}, {15, 1.5}, {20, 1.0}, {30, 0.5}, {40, 0.0}, {90, 0.0}})
    EXPECT_DOUBLE_EQ(learning_rate(d, 100, step), rate) << step;
}

TEST(LearningRate, CoolsDownFromAStep) {
  for (const auto schedule : all) {
    OptimizerDeck d = deck_of(schedule);
    const double rate = learning_rate(d, 20, 10);
    d.cooldown_from = 10;
    for (std::int64_t s = 1; s <= 10; ++s)
      EXPECT_DOUBLE_EQ(learning_rate(d, 20, s), learning_rate(deck_of(schedule), 20, s));
    EXPECT_DOUBLE_EQ(learning_rate(d, 20, 15), 0.5 + (rate - 0.5) / 2) << static_cast<int>(schedule);
    EXPECT_DOUBLE_EQ(learning_rate(d, 20, 20), 0.5);
    d.wsd_tail = WsdTail::sqrt;
    EXPECT_DOUBLE_EQ(learning_rate(d, 20, 15), 0.5 + (rate - 0.5) * (1 - std::sqrt(0.5)));
  }
}

TEST(LearningRate, NeverRises) {
  for (const auto schedule : all)
    for (std::int64_t s = 4; s < 200; ++s)
      EXPECT_GE(learning_rate(deck_of(schedule), 100, s), learning_rate(deck_of(schedule), 100, s + 1));
}

}  // namespace
}  // namespace forge
