#include "parallel/timers.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "core/error.hpp"
#include "device/stream.hpp"

namespace forge {
namespace {

using std::chrono::milliseconds;

void give_work(Stream& stream, int ms) {
  stream.submit([ms] { std::this_thread::sleep_for(milliseconds(ms)); });
}

// A stream that runs behind the host, as a GPU's does: what is counted is the stream's time.
TEST(PhaseTimers, CountTheTimeOfTheStream) {
  Stream stream(1, Stream::Kind::Worker);
  PhaseTimers timers(stream);
  for (int step = 1; step <= 3; ++step) {
    {
      const auto forward = timers.start(Phase::forward);
      give_work(stream, 30);
    }
    give_work(stream, 5);  // of no phase
    const auto optimizer = timers.start(Phase::optimizer);
    stream.synchronize();
    timers.count_ended();  // the optimizer's has not
    EXPECT_GE(timers.seconds(Phase::forward), step * 0.03);
    give_work(stream, 20);
  }
  EXPECT_GE(timers.seconds(Phase::optimizer), 0.04);  // of two steps, counted in the one behind each
  stream.synchronize();
  timers.count_ended();
  EXPECT_GE(timers.seconds(Phase::optimizer), 0.06);
  EXPECT_EQ(timers.seconds(Phase::backward), 0);
}

TEST(PhaseTimers, LeaveOutWhatFailed) {
  Stream stream;
  PhaseTimers timers(stream);
  const auto fails = [&] {
    const auto scope = timers.start(Phase::forward);
    std::this_thread::sleep_for(milliseconds(2));
    throw Error("on purpose");
  };
  EXPECT_THROW(fails(), Error);
  { const auto scope = timers.start(Phase::backward); }
  timers.count_ended();
  EXPECT_EQ(timers.seconds(Phase::forward), 0);
  const auto twice = [&] {
    const auto outer = timers.start(Phase::data);
    const auto inner = timers.start(Phase::output);
  };
  EXPECT_THROW(twice(), Error);
}

}  // namespace
}  // namespace forge
