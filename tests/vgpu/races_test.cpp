#include <cstdint>

#include "device/launch.hpp"
#include "runtime/races.hpp"
#include "support.hpp"

// Two threads of a block that touch the same shared bytes, one of them writing, with nothing between them: reported in
// every order of threads, whatever the numbers are.

namespace forge::test {
namespace {

class Races : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  template <class Body>
  void run(Body body, unsigned threads = 64);
  TestStream stream;
  DeviceMemory<int> values{64};
};

template <class Body>
__global__ void body_kernel(int* values, Body body) {
  FORGE_SHARED(int, memory, 128);
  body(memory, static_cast<int>(threadIdx.x), values);
}

// Several blocks, so that what one block did is no race with the next.
template <class Body>
void Races::run(Body body, unsigned threads) {
  EXPECT_CUDA(start(stream, {3, threads}, body_kernel<Body>, values.data, body));
  stream.wait();
}

#define BODY [](int* m, [[maybe_unused]] int t, [[maybe_unused]] int* out)

TEST_F(Races, AreReportedWithBothThreads) {
  const auto neighbours = BODY {
    m[t] = t;
    out[t] = m[63 - t];
  };
  EXPECT_REPORT(
      run(neighbours),
      "body_kernel.*block \\(.,0,0\\): a race in shared memory: thread \\([0-9]+,0,0\\) (reads|writes) 4 bytes at "
      "offset [0-9]+ of a shared array of 512 bytes, which thread \\([0-9]+,0,0\\) has (written|read) since the "
      "block began; nothing orders the two");
  run(BODY {
    m[t] = t;
    __syncthreads();
    out[t] = m[63 - t];
  });
  EXPECT_EQ(values.read(stream)[5], 58);
}

TEST_F(Races, AreReadsBehindAWriteWritesBehindAReadAndWritesOfTwo) {
  EXPECT_REPORT(run(BODY {
                  if (t == 0) m[0] = 1;
                  out[t] = m[0];
                }),
                "a race in shared memory");
  // The value is the same before and after: no order of threads gives a wrong number.
  EXPECT_REPORT(run(BODY { m[0] = 7; }), "a race.*writes 4 bytes at offset 0 .*has written");
  const auto read_then_written = BODY {
    m[t] = t;
    __syncthreads();
    const int sum = m[0] + m[t];
    out[t] = sum;
    if (t == 40) m[0] = sum;
  };
  EXPECT_REPORT(run(read_then_written), "a race.*since the barrier races_test.cpp:[0-9]+");
  run(BODY {
    m[t] = t;
    __syncthreads();
    out[t] = m[0] + m[t];
    __syncthreads();
    if (t == 40) m[0] = 1;
  });
}

// A warp's threads run together only where __syncwarp says so; a shuffle moves registers and orders no memory.
TEST_F(Races, OfAWarpEndAtSyncwarp) {
  const auto by_warp = [](auto meet) {
    return [meet](int* m, int t, int* out) {
      m[t] = t;
      meet();
      out[t] = m[t ^ 1];
    };
  };
  run(by_warp([] { __syncwarp(); }));
  run(by_warp([] { __syncwarp(threadIdx.x & 2 ? 0xccccccccu : 0x33333333u); }));
  EXPECT_EQ(values.read(stream)[5], 4);
  EXPECT_REPORT(run(by_warp([] { __shfl_xor_sync(0xffffffffu, 1, 1); })), "a race in shared memory");
  EXPECT_REPORT(run(by_warp([] { __syncwarp(threadIdx.x & 1 ? 0xaaaaaaaau : 0x55555555u); })),
                "a race in shared memory");
  // Not beyond the warp.
  EXPECT_REPORT(run(BODY {
                  m[t] = t;
                  __syncwarp();
                  out[t] = m[t ^ 32];
                }),
                "a race in shared memory");
}

// Lane 1 hands on what it got from lane 0. In a kernel, masks that overlap must not wait at the same time.
TEST(SharedRaces, LanesHandOnWhatTheyHaveSeen) {
  vgpu::SharedRaces races(64);
  const auto accesses = [&](int thread, vgpu::Access kind) {
    races.set_thread(thread);
    return races.access(0, 4, kind);
  };
  races.begin(64);
  EXPECT_TRUE(accesses(32, vgpu::Access::write));
  races.warp(1, 0x3, false);
  EXPECT_TRUE(accesses(33, vgpu::Access::read));
  races.warp(1, 0x6, false);
  EXPECT_TRUE(accesses(34, vgpu::Access::write));
  EXPECT_FALSE(accesses(35, vgpu::Access::read));
  EXPECT_EQ(races.race().thread, 34);
  races.begin(64);
  EXPECT_TRUE(accesses(35, vgpu::Access::read));
}

// Lanes 0 and 1 have met, then lane 0 reads: that lane 5 has read before makes it no less a race.
TEST(SharedRaces, ReadsBehindAMeetingOfSomeLanesAreNotOrderedByIt) {
  vgpu::SharedRaces races(64);
  const auto accesses = [&](int thread, vgpu::Access kind) {
    races.set_thread(thread);
    return races.access(0, 4, kind);
  };
  const auto begins_with_reads = [&](std::initializer_list<int> threads) {
    races.begin(64);
    for (const int t : threads) EXPECT_TRUE(accesses(t, vgpu::Access::read));
  };
  begins_with_reads({0});
  races.warp(0, 0x3, false);
  EXPECT_TRUE(accesses(1, vgpu::Access::write));  // the read was before
  begins_with_reads({0});
  races.warp(0, 0x3, false);
  EXPECT_TRUE(accesses(0, vgpu::Access::read));
  EXPECT_FALSE(accesses(1, vgpu::Access::write));
  EXPECT_EQ(races.race().thread, 0);
  // Each is ordered by its own meeting, in whatever order they come.
  begins_with_reads({0});
  races.warp(0, 0x3, false);
  EXPECT_TRUE(accesses(5, vgpu::Access::read));
  races.warp(0, 0x22, false);
  EXPECT_TRUE(accesses(1, vgpu::Access::write));
  // Two have read, so a third changes nothing, unless the two meet the writer.
  begins_with_reads({0, 1});
  races.warp(0, 0xb, false);
  EXPECT_TRUE(accesses(2, vgpu::Access::read));
  EXPECT_FALSE(accesses(3, vgpu::Access::write));
  EXPECT_EQ(races.race().thread, 2);
  // A read stands behind what is behind it, not in place of an atomic operation.
  begins_with_reads({});
  races.warp(0, 0x3, false);
  EXPECT_TRUE(accesses(0, vgpu::Access::atomic));
  EXPECT_TRUE(accesses(4, vgpu::Access::atomic));
  races.warp(0, 0x31, false);
  EXPECT_TRUE(accesses(5, vgpu::Access::read));
  races.warp(0, 0x5, false);
  EXPECT_TRUE(accesses(2, vgpu::Access::read));  // by lane 0, which has met lane 4
  EXPECT_FALSE(accesses(6, vgpu::Access::read));
}

// Bytes of a word have what the word had.
TEST(SharedRaces, LanesOfAWordStayThoseOfItsBytes) {
  vgpu::SharedRaces races(64);
  races.begin(64);
  races.warp(0, 0x3, false);
  races.set_thread(0);
  EXPECT_TRUE(races.access(4, 4, vgpu::Access::read));
  races.set_thread(1);
  EXPECT_TRUE(races.access(6, 1, vgpu::Access::read));
  races.set_thread(2);
  EXPECT_FALSE(races.access(5, 1, vgpu::Access::write));
  EXPECT_EQ(races.race().thread, 0);
}

TEST_F(Races, OfAtomicLoadsAreWithWritesOnly) {
  const auto loads = [](auto other) {
    return [other](int* m, int t, int* out) {
      if (t == 0) m[0] = 0;
      __syncthreads();
      if (t % 2 == 0) out[t] = __atomic_load_n(m, __ATOMIC_RELAXED);
      other(m, t);
      __syncthreads();
      out[t] = m[0];
    };
  };
  run(loads([](int* m, int t) {
    if (t % 2 == 1) atomicAdd(m, 1);
  }));
  EXPECT_EQ(values.read(stream)[5], 32);
  run(loads([](int* m, int) { (void)*const_cast<volatile int*>(m); }));
  EXPECT_REPORT(run(loads([](int* m, int t) {
                  if (t == 63) m[0] = 1;
                })),
                "a race.*(has loaded|loads 4 bytes)");
}

TEST_F(Races, OfAtomicOperationsAreWithOthersOnly) {
  const auto counted = [](auto between) {
    return [between](int* m, int t, int* out) {
      if (t == 0) m[0] = 0;
      __syncthreads();
      atomicAdd(m, 1);
      between();
      out[t] = m[0];
    };
  };
  run(counted([] { __syncthreads(); }));
  EXPECT_EQ(values.read(stream)[63], 64);
  EXPECT_REPORT(run(counted([] {})), "a race");
  EXPECT_REPORT(run(BODY {
                  m[0] = 0;
                  atomicAdd(m, 1);
                }),
                "a race");
  run(BODY {
    atomicExch(m + t / 32, t);
    __syncwarp();
    out[t] = m[t / 32];
  });
}

// Threads may write neighbouring bytes of one word, and words of bytes.
TEST_F(Races, AreCountedByByte) {
  const auto bytes = BODY {
    auto* b = reinterpret_cast<std::uint8_t*>(m);
    b[t] = static_cast<std::uint8_t>(t);
    __syncthreads();
    out[t] = m[t / 4];
    __syncthreads();
    if (t < 8) reinterpret_cast<std::uint64_t*>(m)[t] = 1;
    __syncthreads();
    reinterpret_cast<std::uint16_t*>(m)[t] = 2;
  };
  run(bytes);
  EXPECT_EQ(values.read(stream)[0], 0x03020100);
  EXPECT_REPORT(run(BODY {
                  auto* b = reinterpret_cast<std::uint8_t*>(m);
                  if (t < 2) b[t] = 1;
                  if (t == 33) out[0] = reinterpret_cast<std::uint16_t*>(m)[0];
                }),
                "a race in shared memory");
}

// A copy may land anywhere between its start and its wait.
TEST_F(Races, OfAsynchronousCopiesBeginWithThem) {
  const auto copied = [](auto before, auto behind) {
    return [before, behind](int* m, int t, int* out) {
      m[t] = t;
      __syncthreads();
      const int old = m[63 - t];
      before();
      if (t < 16) vgpu_copy_async(m + 4 * t, out + 4 * t, 16, 16);
      vgpu_copy_async_commit();
      vgpu_copy_async_wait(0);
      behind();
      out[t] = old + m[63 - t];
    };
  };
  const auto barrier = [] { __syncthreads(); };
  const auto nothing = [] {};
  run(copied(barrier, barrier));
  EXPECT_REPORT(run(copied(nothing, barrier)), "a race in shared memory");
  EXPECT_REPORT(run(copied(barrier, nothing)), "a race in shared memory");
  // All have met, but the copy is still on its way.
  EXPECT_REPORT(run(BODY {
                  if (t == 0) vgpu_copy_async(m, out, 16, 16);
                  vgpu_copy_async_commit();
                  __syncthreads();
                  if (t == 40) out[t] = m[0];
                  __syncwarp();
                  vgpu_copy_async_wait(0);
                }),
                "a race in shared memory");
}

// Nobody may meet its bytes before the wait, behind whatever barriers, nor may the thread that copies.
TEST_F(Races, OfAsynchronousCopiesEndAtTheirWait) {
  const auto copied = [](int reader, auto access) {
    return [reader, access](int* m, int t, int* out) {
      if (t == 0) vgpu_copy_async(m, out, 16, 16);
      vgpu_copy_async_commit();
      __syncthreads();
      if (t == reader) access(m + 3, out + t);
      __syncthreads();
      vgpu_copy_async_wait(0);
      __syncthreads();
      out[t] = m[t % 4];
    };
  };
  const auto read = [](const int* m, int* out) { *out = *m; };
  const auto written = [](int* m, int*) { *m = 1; };
  const auto again = [](int* m, int* out) { vgpu_copy_async(m, out, 4, 4); };
  const std::string report = "offset 12 of .*, where an asynchronous copy of thread \\(0,0,0\\) goes";
  run(copied(-1, read));
  for (const int reader : {40, 0}) {
    EXPECT_REPORT(run(copied(reader, read)), report);
    EXPECT_REPORT(run(copied(reader, written)), report);
    EXPECT_REPORT(run(copied(reader, again)), report);
  }
  EXPECT_REPORT(run(copied(0, read), 1), report);
}

}  // namespace
}  // namespace forge::test
