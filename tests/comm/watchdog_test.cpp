#include "comm/watchdog.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace forge::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// What a watchdog says, and when it does.
struct Said {
  std::promise<Watchdog::Missed> promise;
  std::future<Watchdog::Missed> missed = promise.get_future();
  std::function<void(const Watchdog::Missed&)> listener() {
    return [this](const Watchdog::Missed& m) { promise.set_value(m); };
  }
};

TEST(Watchdog, SaysWhatWasGoingOnAtTheDeadline) {
  Said said;
  const auto start = Clock::now();
  Watchdog watchdog({0.3, 0.1}, "start", said.listener());
  watchdog.start_step(7);
  watchdog.enter("gradients");
  const Watchdog::Missed missed = said.missed.get();
  EXPECT_EQ(missed.doing, "step 7, gradients");
  EXPECT_TRUE(missed.alone);
  EXPECT_GE(seconds_since(start), 0.3) << "the first step has the first deadline";
}

TEST(Watchdog, WatchesFromItsBeginning) {
  Said said;
  Watchdog watchdog({0.2, 0.1}, "MPI_Init", said.listener());
  EXPECT_EQ(said.missed.get().doing, "MPI_Init");
}

TEST(Watchdog, IsQuietWhileStepsEnd) {
  std::atomic<bool> missed = false;
  {
    Watchdog watchdog({2, 2}, "start", [&](const Watchdog::Missed&) { missed = true; });
    for (std::int64_t step = 1; step <= 50; ++step) {
      watchdog.start_step(step);
      sleep_for(0.06);
      watchdog.step_done(0.06);
    }
  }
  EXPECT_FALSE(missed);
}

// Later steps: the shorter deadline, or ten times the median of those before.
TEST(Watchdog, KnowsHowLongStepsTake) {
  for (const double usual : {0.001, 0.06}) {
    Said said;
    Watchdog watchdog({30, 0.2}, "start", said.listener());
    for (std::int64_t step = 1; step <= 9; ++step) {
      watchdog.start_step(step);
      watchdog.step_done(step % 3 == 0 ? 100 : usual);
    }
    const auto start = Clock::now();
    watchdog.start_step(10);
    said.missed.get();
    EXPECT_GE(seconds_since(start), usual > 0.02 ? 10 * usual : 0.2);
    EXPECT_LT(seconds_since(start), 20);
  }
}

// Steps of a ramp's small batches say what a larger one may take at most; once it was seen, its own time counts.
TEST(Watchdog, KnowsHowLongStepsOfABatchTake) {
  for (const bool seen : {false, true}) {
    Said said;
    Watchdog watchdog({30, 0.1}, "start", said.listener());
    for (std::int64_t step = 1; step <= 9; ++step) {
      watchdog.start_step(step, 8);
      watchdog.step_done(0.02);
    }
    if (seen) {
      watchdog.start_step(10, 80);
      watchdog.step_done(0.06);
    }
    const auto start = Clock::now();
    watchdog.start_step(11, 80);
    said.missed.get();
    EXPECT_GE(seconds_since(start), seen ? 0.6 : 2);
    if (seen) {
      EXPECT_LT(seconds_since(start), 1.9) << "the batch's own time";
    }
  }
}

// A checkpoint may take as long as it wants while bytes are written; then the deadline counts from the last ones.
TEST(Watchdog, LooksAtProgressNotAtLength) {
  Said said;
  Watchdog watchdog({1.5, 0.1}, "start", said.listener());
  watchdog.start_other(4, "checkpoint");
  for (int part = 0; part < 40; ++part) {
    sleep_for(0.05);
    watchdog.heartbeat().beat();
  }
  EXPECT_EQ(said.missed.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  const auto last = Clock::now();
  EXPECT_EQ(said.missed.get().doing, "step 4, checkpoint");
  EXPECT_GE(seconds_since(last), 1.3);
}

// A checkpoint that is written behind the steps doesn't prolong them.
TEST(Watchdog, BeatsAreNoneOfAStep) {
  Said said;
  Watchdog watchdog({0.4, 0.1}, "start", said.listener());
  watchdog.start_step(1);
  while (said.missed.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout)
    watchdog.heartbeat().beat();
  EXPECT_EQ(said.missed.get().doing, "step 1, data");
}

TEST(Watchdog, WaitsForEverWithoutDeadlines) {
  Said said;
  Watchdog watchdog({0.2, 0.1}, "start", said.listener());
  watchdog.set({0, 0.1});
  sleep_for(0.5);
  watchdog.start_step(1);
  sleep_for(0.3);
  EXPECT_EQ(said.missed.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  watchdog.set({0.1, 0.1});
  EXPECT_EQ(said.missed.get().doing, "step 1, data");
}

// Watchdogs of several ranks: one speaks for all, with what each does.
TEST(Watchdog, AsksTheOthers) {
  constexpr int ranks = 5;
  ThreadPost post(ranks);
  std::vector<std::unique_ptr<Said>> said;
  std::vector<std::unique_ptr<Watchdog>> watchdogs;
  for (int r = 0; r < ranks; ++r) {
    said.push_back(std::make_unique<Said>());
    watchdogs.push_back(std::make_unique<Watchdog>(Deadlines{0.5, 0.5}, "start", said.back()->listener()));
  }
  for (int r = 0; r < ranks; ++r) {
    Watchdog& watchdog = *watchdogs[static_cast<std::size_t>(r)];
    if (r != 3) watchdog.join(r, ranks, post.mail_of(r));  // it is stopped
    if (r == 3) watchdog.set({0, 0});
    watchdog.start_step(2);
    watchdog.enter(r == 1 ? "data" : "labels");
  }
  const Watchdog::Missed missed = said[0]->missed.get();
  EXPECT_FALSE(missed.alone);
  EXPECT_EQ(missed.ranks.silent.text(), "3");
  ASSERT_EQ(missed.ranks.answers.size(), 2u);
  EXPECT_EQ(missed.ranks.answers.at("step 2, labels").text(), "0, 2, 4");
  EXPECT_EQ(missed.ranks.answers.at("step 2, data").text(), "1");
  for (int r = 1; r < ranks; ++r)
    EXPECT_EQ(said[static_cast<std::size_t>(r)]->missed.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  for (const auto& watchdog : watchdogs) watchdog->leave();
}

// What comes twice is one part; the first step's batch ends the start, whatever is not a step later.
TEST(Watchdog, KnowsThePartsOfTheStart) {
  Watchdog watchdog({0, 0}, "start", [](const Watchdog::Missed&) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (const char* what : {"measurements", "parameters", "measurements"}) watchdog.start_other(0, what);
  watchdog.start_step(7);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  watchdog.enter("labels");
  const StartTimes then = watchdog.start_times();
  watchdog.start_other(8, "validation");
  watchdog.start_other(0, "end");
  EXPECT_EQ(watchdog.start_times(), then);
  std::vector<std::string> names;
  for (const auto& part : then) names.push_back(part.first);
  EXPECT_EQ(names, (std::vector<std::string>{"start", "measurements", "parameters", first_batch_name}));
  EXPECT_GE(then.front().second, 0.02);
  EXPECT_GE(then.back().second, 0.02);
}

}  // namespace
}  // namespace forge::test
