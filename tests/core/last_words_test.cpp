#include "core/last_words.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "core/error.hpp"

namespace forge {
namespace {

// As a stream or a communicator does whose peers never come.
struct WaitsForEver {
  ~WaitsForEver() {
    for (;;) pause();
  }
};

struct HalfMade {
  HalfMade() { throw LibraryFailed("the second member fails"); }
  WaitsForEver first;
};

void speak(const std::exception_ptr& error) {
  alarm(0);
  if (!error) std::_Exit(7);
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    std::fprintf(stderr, "last words: %s\n", e.what());
    std::_Exit(static_cast<int>(e.code()));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "last words: %s\n", e.what());
    std::_Exit(1);
  }
}

// Ends by SIGALRM where a destructor runs first.
template <class F>
void with_last_words(F f) {
  alarm(60);
  const LastWords last_words(speak);
  f();
}

void fail_inside() {
  const WaitsForEver stream;
  throw IoFailed("the disk is full");
}

class LastWordsDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// GoogleTest itself catches what a statement throws; a thread has nobody above it, as a rank's main().
TEST_F(LastWordsDeathTest, ComeBeforeAnyDestructor) {
  EXPECT_EXIT(with_last_words([] { std::thread(fail_inside).join(); }), testing::ExitedWithCode(5),
              "last words: the disk is full");
}

TEST_F(LastWordsDeathTest, ComeBeforeThoseOfAnObjectThatIsHalfMade) {
  EXPECT_EXIT(with_last_words([] { std::thread([] { HalfMade object; }).join(); }), testing::ExitedWithCode(6),
              "last words: the second member fails");
}

// A handler of another type is none.
TEST_F(LastWordsDeathTest, ComeWhereAnotherExceptionIsWaitedFor) {
  const auto waits_for_a_signal = [] {
    try {
      fail_inside();
    } catch (const LeftOnSignal&) {
      std::_Exit(75);
    }
  };
  EXPECT_EXIT(with_last_words([&] { std::thread(waits_for_a_signal).join(); }), testing::ExitedWithCode(5),
              "the disk is full");
}

// What was caught on the way and thrown again.
TEST_F(LastWordsDeathTest, ComeAfterCleaningUp) {
  const auto cleans_up = [] {
    const WaitsForEver communicator;
    try {
      throw BadInput("no such file");
    } catch (...) {
      std::fprintf(stderr, "cleaned up, ");
      throw;
    }
  };
  EXPECT_EXIT(with_last_words([&] { std::thread(cleans_up).join(); }), testing::ExitedWithCode(2),
              "cleaned up, last words: no such file");
}

// Of another thread, beside the one that fails; what is over is not done.
TEST_F(LastWordsDeathTest, ComeAfterTheLastAct) {
  const auto fails = [](bool over, const char* what) {
    auto act = std::make_unique<LastAct>([what] { std::fprintf(stderr, "%s, ", what); });
    if (over) act.reset();
    std::thread(fail_inside).join();
  };
  EXPECT_EXIT(with_last_words([&] { fails(false, "the lock is given back"); }), testing::ExitedWithCode(5),
              "^the lock is given back, last words: the disk is full");
  EXPECT_EXIT(with_last_words([&] { fails(true, "too late"); }), testing::ExitedWithCode(5),
              "^last words: the disk is full");
  const auto fails_itself = [] {
    const LastAct act([] { throw IoFailed("no lock either"); });
    std::thread(fail_inside).join();
  };
  EXPECT_EXIT(with_last_words(fails_itself), testing::ExitedWithCode(5), "^last words: the disk is full");
}

TEST_F(LastWordsDeathTest, OfAThreadThatGivesUp) {
  const auto gives_up = [] {
    try {
      throw LibraryFailed("MPI_Waitall: truncated");
    } catch (...) {
      LastWords::speak_now();
    }
  };
  EXPECT_EXIT(with_last_words([&] { std::thread(gives_up).join(); }), testing::ExitedWithCode(6), "MPI_Waitall");
  EXPECT_FALSE(LastWords::wanted());
  gives_up();
  EXPECT_EXIT(with_last_words([] { std::terminate(); }), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace forge
