#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "checks.hpp"
#include "cuda_runtime.h"
#include "fiber.hpp"
#include "races.hpp"
#include "random.hpp"

namespace vgpu {

// A launch, as the executor runs it.
struct Grid {
  VgpuKernel kernel;
  std::string name;
  uint3 blocks, threads;
  std::size_t dynamic_shared = 0;

  std::uint64_t size() const { return std::uint64_t{blocks.x} * blocks.y * blocks.z; }
  unsigned block_size() const { return threads.x * threads.y * threads.z; }
};

// Which thread of a block runs next, where several could.
enum class ThreadOrder { forwards, backwards, shuffled };

// The block of a kernel that an executor runs: its threads, its shared memory, where the threads meet. One object
// serves all blocks of all kernels of a device, one after another. A thread runs on a fiber until it has to wait for
// others; a fiber whose thread has ended takes the next one, so that a kernel without barriers needs one fiber only.
class Block {
 public:
  Block(const Memory& memory, std::uint64_t seed);
  ~Block();

  void begin(const Grid& grid, ThreadOrder order);
  void run(std::uint64_t number);
  void end();

  // ---- for the threads that run
  void barrier(const char* file, int line);
  void warp(const VgpuWarpOperation& operation, unsigned mask, const std::uint32_t* in, std::uint32_t* out,
            const char* file, int line);
  void* shared_array(const void* site, std::size_t bytes, std::size_t alignment);
  void* dynamic_shared();
  void copy_async(void* to, const void* from, std::size_t bytes, std::size_t read);
  void copy_async_commit();
  void copy_async_wait(int pending);
  void mbarrier_init(const void* barrier, unsigned count);
  void mbarrier_arrive(const void* barrier);
  void mbarrier_wait(const void* barrier, unsigned parity, const char* file, int line);
  // Of the warp whose operation is computed.
  void set_lane(int lane) { races_.set_thread(current_ / 32 * 32 + lane); }

  // ---- for checks and messages
  bool in_shared_array(std::uintptr_t address, std::size_t bytes) const;
  // Ends the process with races().race()'s text on an access.
  [[noreturn]] void fail_of_race(const void* address, std::size_t bytes, Access kind) const;
  bool is_shared(std::uintptr_t address) const;
  bool is_local(std::uintptr_t address) const;
  int device() const { return memory_.device(); }
  // "kernel K, block (0,0,0), thread (3,0,0)"
  std::string place() const;

 private:
  struct Place {
    const char* file = nullptr;
    int line = 0;
    bool operator==(const Place&) const = default;
  };
  struct AsyncCopy {
    void* to;
    const void* from;
    std::size_t bytes, read;
    int group;
  };
  enum class State { fresh, running, ready, barrier, warp, mbarrier, done };
  struct Thread {
    State state = State::fresh;
    uint3 index{};
    Fiber* fiber = nullptr;
    Place place;
    std::vector<AsyncCopy> copies;
    int groups = 0;  // committed
  };
  // Lanes that wait for the others of their mask.
  struct Meeting {
    const char* name;
    void (*compute)(VgpuLanes*);
    Place place;
    unsigned arrived = 0;
    VgpuLanes lanes;
    std::uint32_t* results[32];  // where each lane wants its own
  };
  // `count` arrivals end a phase; those who wait for its end go on, behind all that arrived.
  struct Mbarrier {
    unsigned count, pending, phases = 0;
    SharedRaces::Arrivals arrivals;
    std::vector<int> waiting;
  };
  struct SharedArray {
    const void* site;
    std::size_t begin, bytes;
  };

  static constexpr std::size_t shared_bytes = 256 << 10;  // with the gaps between arrays

  static void run_fiber();
  Mbarrier& mbarrier_at(const void* barrier, const char* what);
  static std::string text_of(const Place& place);
  static std::string text_of(const uint3& index);
  void run_thread();
  void end_thread();
  // Goes on with another thread, until this one is ready again.
  void wait(State state, const Place& place);
  // Of those that may run; ends the process where there is none.
  int next();
  void go_on(int thread);
  void make_ready(int thread);
  Fiber* idle_fiber();
  Meeting& meeting_of(const VgpuWarpOperation& operation, unsigned warp, unsigned mask, const Place& place);
  void release_lanes(unsigned warp, unsigned mask);
  unsigned lanes_of(unsigned warp) const;
  std::string waiting_text() const;
  void poison_shared();
  std::size_t offset_of(const void* shared) const;

  const Memory& memory_;
  const Grid* grid_ = nullptr;
  ThreadOrder order_ = ThreadOrder::forwards;
  Random random_;
  KernelView view_;
  Fiber home_;
  Fiber* running_ = &home_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<Thread> threads_;
  std::vector<int> fresh_, ready_;                               // the next one stands last
  std::vector<std::vector<std::unique_ptr<Meeting>>> meetings_;  // by warp
  std::unordered_map<const void*, Mbarrier> mbarriers_;
  int current_ = -1;
  unsigned at_barrier_ = 0, done_ = 0;
  Place barrier_, last_barrier_;  // of those at it; of all
  char* shared_;
  std::vector<SharedArray> arrays_;
  std::size_t shared_used_ = 0;
  SharedRaces races_{shared_bytes};
};

}  // namespace vgpu
