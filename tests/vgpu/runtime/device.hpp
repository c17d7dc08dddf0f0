#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "block.hpp"
#include "counters.hpp"
#include "host_thread.hpp"
#include "memory.hpp"
#include "nccl_turns.hpp"
#include "random.hpp"
#include "work.hpp"

namespace vgpu {

class Capture;

// The queue of a cudaStream_t.
struct Stream {
  static constexpr int undrawn = -1;

  Device& device;
  int number;  // of the device, for messages
  std::deque<std::unique_ptr<Work>> queue{};
  std::uint64_t given = 0, done = 0;
  int delay = undrawn;                 // choices that still pass over its first work
  std::shared_ptr<Capture> capture{};  // while it records instead of running; of the thread that captures
};

// One device: memory, streams, and the thread that runs their work. Among the streams whose next work can go on it
// draws one, by seed: every order that the streams' events allow may come. Work that was given waits a while, drawn
// too, unless a host waits for it: as late as it may be on a GPU.
class Device {
 public:
  explicit Device(int number);

  int number() const { return number_; }
  Memory& memory() { return memory_; }
  Counters& counters() { return counters_; }
  HostThread& host_thread() { return host_thread_; }
  NcclTurns& nccl() { return nccl_; }

  // ---- hosts
  Stream* create_stream();
  void destroy(Stream* stream);
  bool has(const Stream* stream);
  void give(Stream& stream, std::unique_ptr<Work> work);
  // Until all that was given has been done.
  void wait(Stream& stream);
  void wait_for_all();
  bool idle(Stream& stream);
  // Until `passed`, which some work of this device makes true.
  void wait_until(const std::function<bool()>& passed);
  void ring() { memory_.bell().ring(); }
  // Stops taking work, for the end of the process.
  void halt();

  // ---- the executor's thread
  void run_blocks(const Grid& grid, ThreadOrder order, const std::function<std::uint64_t(std::uint64_t)>& number,
                  std::uint64_t begin, std::uint64_t end);
  Random& random() { return random_; }

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  Stream* choose();
  void draw_lag();
  bool held() const;
  void draw_hold();
  void rest(std::unique_lock<std::mutex>& lock, std::uint32_t heard);
  void check_progress();
  std::string queues_text() const;

  int number_;
  Memory memory_;
  Counters counters_;
  Random random_;
  Block block_;
  HostThread host_thread_;
  NcclTurns nccl_;

  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::list<Stream> streams_;
  int streams_made_ = 0;
  std::uint64_t waiting_work_ = 0;  // given and not done
  int hosts_waiting_ = 0;
  bool awake_ = false;  // takes work until there is none
  // Now and then one stream stands still for a while behind others that wait for other devices: their sends then come
  // before its works, where no event is in the way.
  Stream* lagging_ = nullptr;
  Clock::time_point lag_end_;
  std::uint64_t hold_count_ = 0;
  Clock::duration hold_time_{};
  Clock::time_point first_given_, last_progress_;
  std::atomic<bool> halting_{false}, halted_{false};
  std::thread executor_;
};

}  // namespace vgpu
