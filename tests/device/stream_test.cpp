#include "device/stream.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/last_words.hpp"

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

}  // namespace
}  // namespace forge
