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

TEST(LearningRate, NeverRises) {
  for (const auto schedule : all)
    for (std::int64_t s = 4; s < 200; ++s)
      EXPECT_GE(learning_rate(deck_of(schedule), 100, s), learning_rate(deck_of(schedule), 100, s + 1));
}

}  // namespace
}  // namespace forge
