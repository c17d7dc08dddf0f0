#include "device/stream.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/last_words.hpp"
#include "device/side_stream.hpp"

namespace forge {
namespace {

TEST(Stream, needs_a_thread) {
  EXPECT_THROW(Stream(0), Error);
}

TEST(Stream, keeps_the_order_of_its_work) {
  for (const auto kind : {Stream::Kind::Inline, Stream::Kind::Worker}) {
    Stream s(1, kind);
    std::vector<int> seen;
    for (int i = 0; i < 1000; ++i) s.submit([&seen, i] { seen.push_back(i); });
    s.synchronize();
    ASSERT_EQ(seen.size(), 1000u);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
  }
}

// Work runs beside the calling thread: it waits for something that the caller does afterwards.
TEST(Stream, worker_runs_behind_the_caller) {
  Stream s(1, Stream::Kind::Worker);
  std::atomic<bool> go = false;
  s.submit([&] {
    while (!go) std::this_thread::yield();
  });
  go = true;
  s.synchronize();
}

TEST(Stream, an_exception_comes_out_of_synchronize_once) {
  Stream s(1, Stream::Kind::Worker);
  std::atomic<int> later = 0;
  s.submit([] { throw std::runtime_error("lost"); });
  s.submit([&] { ++later; });
  EXPECT_THROW(s.synchronize(), std::runtime_error);
  EXPECT_EQ(later, 0) << "work behind a failure isn't run";
  EXPECT_NO_THROW(s.synchronize());
  s.submit([&] { ++later; });
  s.synchronize();
  EXPECT_EQ(later, 1);
}

TEST(Stream, finishes_its_work_before_it_goes) {
  std::atomic<int> done = 0;
  {
    Stream s(1, Stream::Kind::Worker);
    for (int i = 0; i < 100; ++i) s.submit([&] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST(Event, orders_two_streams) {
  Stream producer(1, Stream::Kind::Worker), consumer(1, Stream::Kind::Worker);
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> go = false;
    int value = 0, seen = -1;
    producer.submit([&] {
      while (!go) std::this_thread::yield();
      value = 7;
    });
    Event event;
    event.record(producer);
    event.wait(consumer);
    consumer.submit([&] { seen = value; });
    EXPECT_FALSE(event.ready());
    go = true;
    consumer.synchronize();
    EXPECT_EQ(seen, 7);
    EXPECT_TRUE(event.ready());
    event.synchronize();
  }
}

TEST(Event, unrecorded_holds_nobody_up) {
  Event event;
  Stream s(1, Stream::Kind::Worker);
  event.wait(s);
  event.synchronize();
  EXPECT_TRUE(event.ready());
  s.synchronize();
}

// An event that is recorded again: who waited for the first point still gets it.
TEST(Event, may_be_recorded_again) {
  Stream a(1, Stream::Kind::Worker), b(1, Stream::Kind::Worker);
  if (a.native()) GTEST_SKIP() << "CUDA may run the host work of all streams in one thread";
  std::atomic<bool> go = false;
  std::atomic<int> reached = 0;
  Event event;
  event.record(a);
  event.wait(b);
  b.submit([&] { reached = 1; });
  a.submit([&] {
    while (!go) std::this_thread::yield();
  });
  event.record(a);
  b.synchronize();
  EXPECT_EQ(reached, 1);
  go = true;
  event.synchronize();
  a.synchronize();
}

// Whoever waits for a point is woken there, and not before it, whatever others wait for.
TEST(Event, wakes_each_waiter_at_its_own_point) {
  constexpr int points = 8;
  Stream s(1, Stream::Kind::Worker);
  std::atomic<int> released = 0;
  std::atomic<bool> passed[points] = {};
  std::vector<Event> events(points);
  for (int i = 0; i < points; ++i) {
    s.submit([&released, i] {
      while (released <= i) std::this_thread::yield();
    });
    events[static_cast<std::size_t>(i)].record(s);
  }
  std::vector<std::thread> waiters(points);
  for (int i = points - 1; i >= 0; --i)
    waiters[static_cast<std::size_t>(i)] = std::thread([&, i] {
      events[static_cast<std::size_t>(i)].synchronize();
      passed[i] = true;
    });
  for (int i = 0; i < points; ++i) {
    released = i + 1;
    waiters[static_cast<std::size_t>(i)].join();
    for (int later = i + 1; later < points; ++later) EXPECT_FALSE(passed[later]);
  }
  s.synchronize();
}

// Where last words are wanted: the caller waits for something else, which never comes.
TEST(StreamDeathTest, a_failure_is_told_before_anybody_asks) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto waits = [] {
    const LastWords last_words([](const std::exception_ptr&) { std::_Exit(5); });
    alarm(60);
    Stream s(1, Stream::Kind::Worker);
    s.submit([] { throw std::runtime_error("lost"); });
    for (;;) pause();
  };
  EXPECT_EXIT(waits(), testing::ExitedWithCode(5), "");
}

// A failure must not leave a waiter of an event behind it hanging.
TEST(Event, is_passed_after_a_failure) {
  Stream a(1, Stream::Kind::Worker);
  a.submit([] { throw std::runtime_error("lost"); });
  Event event;
  event.record(a);
  event.synchronize();
  EXPECT_THROW(a.synchronize(), std::runtime_error);
}

// Each piece of work sees what the stream beside it was given before, and the event is behind the work.
TEST(SideStream, runs_behind_what_was_given_before) {
  Stream compute(1, Stream::Kind::Worker);
  SideStream side;
  side.open();
  std::atomic<int> steps = 0;
  for (int i = 0; i < 200; ++i) {
    Event done;
    int before = -1, after = -1;
    compute.submit([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      ++steps;
    });
    side.run(compute, done, [&](Stream& stream) {
      stream.submit([&] {
        before = steps;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        ++steps;
      });
    });
    done.wait(compute);
    compute.submit([&] { after = steps; });
    compute.synchronize();
    ASSERT_EQ(before, 2 * i + 1);
    ASSERT_EQ(after, 2 * i + 2);
  }
}

TEST(SideStream, without_a_stream_is_the_one_beside_it) {
  Stream compute;
  SideStream none;
  EXPECT_FALSE(none);
  EXPECT_EQ(&none.or_else(compute), &compute);
  Event done;
  bool ran = false;
  none.run(compute, done, [&](Stream& stream) { ran = &stream == &compute; });
  EXPECT_TRUE(ran);
  compute.synchronize();
  EXPECT_TRUE(done.ready());
  none.rethrow();
}

TEST(SideStream, hands_on_what_its_worker_threw) {
  Stream compute, other(1, Stream::Kind::Worker);
  SideStream own, borrowed(&other);
  own.open();
  for (SideStream* side : {&own, &borrowed}) {
    Event done;
    side->run(compute, done, [](Stream& stream) { stream.submit([] { throw std::runtime_error("lost"); }); });
    if (compute.native()) {
      EXPECT_THROW((**side).synchronize(), std::runtime_error);
    } else {
      EXPECT_THROW(side->rethrow(), std::runtime_error);
    }
    EXPECT_NO_THROW(side->rethrow());
  }
}

}  // namespace
}  // namespace forge
