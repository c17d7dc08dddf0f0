#include "kernels/fp8/fp8_history_rows.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "../device_values.hpp"

namespace forge::test {
namespace {

// Rows of three steps, the newest first.
const std::vector<float> entries{3, 5, 4, 0, 0, 0, 7, 1, 0};

TEST(Fp8History, GivesTheLargestOfEachRow) {
  Stream stream(2);
  DeviceArray<float, 2> history(stream, {{3, 3}});
  DeviceArray<float, 1> given(stream, {{3}});
  history.set(entries);
  fp8_largest_of_history(stream, history.view(), given.view());
  EXPECT_EQ(given.get(), (std::vector<float>{5, 0, 7}));
}

TEST(Fp8History, TakesTheLargestOfAStep) {
  Stream stream(2);
  DeviceArray<float, 1> amax(stream, {{1}}), most(stream, {{1}});
  most.set({0});
  for (const float seen : {2.f, 6.f, 5.f}) {
    amax.set({seen});
    fp8_raise(stream, amax.view(), most.view());
  }
  EXPECT_EQ(most.get()[0], 6);
}

// A finite step moves each row on; another one leaves all as it is, be its loss finite or not.
TEST(Fp8History, MovesInFiniteStepsOnly) {
  Stream stream(2);
  for (const float largest : {9.f, static_cast<float>(INFINITY)}) {
    DeviceArray<float, 2> history(stream, {{3, 3}});
    DeviceArray<float, 1> step(stream, {{3}}), given(stream, {{3}});
    DeviceArray<StepScalars, 1> scalars(stream, {{1}});
    history.set(entries);
    given.set({5, 0, 7});
    step.set({2, 0, largest});
    scalars.set({StepScalars{1, 0, 4, 0, 0}});
    fp8_judge_history(stream, step.view(), scalars.view());
    finish_scalars(stream, scalars.view(), 0);
    fp8_move_history(stream, scalars.view(), step.view(), history.view(), given.view());
    const bool finite = std::isfinite(largest);
    EXPECT_EQ(scalars.get()[0].finite, finite ? 1 : 0);
    EXPECT_EQ(history.get(), finite ? (std::vector<float>{2, 3, 5, 0, 0, 0, 9, 7, 1}) : entries);
    EXPECT_EQ(given.get(), (std::vector<float>{5, 0, finite ? 9.f : 7.f}));
  }
}

}  // namespace
}  // namespace forge::test
