#include <cstdint>

#include "device/launch.hpp"
#include "device/mbarrier.hpp"
#include "support.hpp"

// mbarriers of the emulated GPU: who waits goes on behind what has arrived, and what neither orders is a race. Warp 0
// fills the block's memory, warp 1 reads it.

namespace forge::test {
namespace {

class Mbarriers : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  template <class Body>
  void run(Body body);
  TestStream stream;
  DeviceMemory<int> values{64};
};

struct Memory {
  int* numbers;  // 32
  Mbarrier *full, *empty;
  int lane;
  int* out;
};

template <class Body>
__global__ void mbarriers_kernel(int* values, Body body) {
  FORGE_SHARED(int, numbers, 32);
  FORGE_SHARED(Mbarrier, barriers, 2);
  const int thread = static_cast<int>(threadIdx.x);
  const Memory memory{numbers, barriers, barriers + 1, thread % 32, values + thread};
  if (thread == 0) {
    mbarrier_init(memory.full, 1);
    mbarrier_init(memory.empty, 1);
  }
  __syncthreads();
  body(memory, thread / 32);
}

template <class Body>
void Mbarriers::run(Body body) {
  EXPECT_CUDA(start(stream, {3, 64}, mbarriers_kernel<Body>, values.data, body));
  stream.wait();
}

#define BODY [](const Memory& m, int warp)

TEST_F(Mbarriers, OrderWhatHasArrivedBeforeWhoWaits) {
  run(BODY {
    for (int round = 0; round < 5; ++round) {
      if (warp == 0) {
        mbarrier_wait(m.empty, (round & 1) ^ 1);
        m.numbers[m.lane] = 100 * round + m.lane;
        mbarrier_arrive_as_warp(m.full);
      } else {
        mbarrier_wait(m.full, round & 1);
        *m.out = m.numbers[31 - m.lane];
        mbarrier_arrive_as_warp(m.empty);
      }
    }
  });
  EXPECT_EQ(values.read(stream)[32 + 5], 426);
}

// Of two warps' three arrivals the third ends the phase, and each is ordered.
TEST_F(Mbarriers, CountTheirArrivals) {
  const auto both_arrive = BODY {
    if (warp == 0 && m.lane == 0) mbarrier_init(m.empty, 3);
    __syncthreads();
    if (warp == 0) m.numbers[m.lane] = m.lane;
    mbarrier_arrive_as_warp(m.empty);
    if (warp == 1) mbarrier_arrive_as_warp(m.empty);
    mbarrier_wait(m.empty, 0);
    *m.out = m.numbers[31 - m.lane];
  };
  run(both_arrive);
  EXPECT_EQ(values.read(stream)[32 + 5], 26);
}

TEST_F(Mbarriers, WhatTheyDoNotOrderIsARace) {
  const auto unwaited = BODY {
    if (warp == 0) m.numbers[m.lane] = m.lane;
    mbarrier_arrive_as_warp(warp == 0 ? m.full : m.empty);
    if (warp == 1) *m.out = m.numbers[31 - m.lane];
  };
  EXPECT_REPORT(run(unwaited), "a race in shared memory");
  const auto written_behind_its_arrival = BODY {
    if (warp == 0) {
      m.numbers[m.lane] = m.lane;
      mbarrier_arrive_as_warp(m.full);
      m.numbers[m.lane] = -m.lane;
    } else {
      mbarrier_wait(m.full, 0);
      *m.out = m.numbers[31 - m.lane];
    }
  };
  EXPECT_REPORT(run(written_behind_its_arrival), "a race in shared memory");
  const auto filled_while_read = BODY {
    for (int round = 0; round < 2; ++round)
      if (warp == 0) {
        m.numbers[m.lane] = round;
        mbarrier_arrive_as_warp(m.full);
      } else {
        mbarrier_wait(m.full, round);
        *m.out = m.numbers[31 - m.lane];
      }
  };
  EXPECT_REPORT(run(filled_while_read), "a race in shared memory|no thread of the block can go on");
}

TEST_F(Mbarriers, WaitsForWhatNeverArrivesAreReported) {
  const auto unanswered = BODY {
    if (warp == 1) mbarrier_wait(m.full, 0);
  };
  EXPECT_REPORT(run(unanswered), "no thread of the block can go on.*waits for the mbarrier at mbarriers_test.cpp");
  const auto not_made = BODY {
    if (warp == 1) mbarrier_wait(reinterpret_cast<const Mbarrier*>(m.numbers), 0);
  };
  EXPECT_REPORT(run(not_made), "waits for what is no mbarrier");
}

}  // namespace
}  // namespace forge::test
