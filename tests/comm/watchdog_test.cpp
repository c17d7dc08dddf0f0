#include "train/watchdog.hpp"

#include <gtest/gtest.h>

#include <future>

namespace forge::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST(Watchdog, SaysWhatWasGoingOnAtTheDeadline) {
  std::promise<std::string> missed;
  auto said = missed.get_future();
  const auto start = Clock::now();
  Watchdog watchdog({0.3, 0.1}, [&](const std::string& doing) { missed.set_value(doing); });
  watchdog.start_step(7);
  watchdog.enter("gradients");
  EXPECT_EQ(said.get(), "step 7, gradients");
  EXPECT_GE(seconds_since(start), 0.3) << "the first step has the first deadline";
}

TEST(Watchdog, IsQuietWhileStepsEnd) {
  bool missed = false;
  {
    Watchdog watchdog({0.5, 0.5}, [&](const std::string&) { missed = true; });
    for (std::int64_t step = 1; step <= 20; ++step) {
      watchdog.start_step(step);
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      watchdog.step_done(0.04);
    }
  }
  EXPECT_FALSE(missed);
}

// Later steps: the shorter deadline, or ten times the median of those before.
TEST(Watchdog, KnowsHowLongStepsTake) {
  for (const double usual : {0.001, 0.06}) {
    std::promise<void> missed;
    auto end = missed.get_future();
    Watchdog watchdog({30, 0.2}, [&](const std::string&) { missed.set_value(); });
    for (std::int64_t step = 1; step <= 9; ++step) {
      watchdog.start_step(step);
      watchdog.step_done(step % 3 == 0 ? 100 : usual);
    }
    const auto start = Clock::now();
    watchdog.start_step(10);
    end.get();
    EXPECT_GE(seconds_since(start), usual > 0.02 ? 10 * usual : 0.2);
    EXPECT_LT(seconds_since(start), 20);
  }
}

}  // namespace
}  // namespace forge::test
