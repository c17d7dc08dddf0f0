#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace vgpu {

enum class Access { read, write, atomic, atomic_load };

inline bool only_reads(Access kind) {
  return kind == Access::read || kind == Access::atomic_load;
}

// Who touched each byte of a block's shared memory, so that two threads that nothing orders are found: one of them
// writes, and no barrier stands between, nor a __syncwarp of both in one warp. Other operations of a warp order
// nothing: CUDA promises an order of __syncwarp alone. Atomic operations don't race with each other, nor do atomic
// loads with reads. The bytes that an asynchronous copy goes to are its own from its start to its wait, whoever meets
// between.
//
// With mbarriers a thread is also ordered behind the work of warps before they met, arrived, and it has waited. Then
// each word's readers are kept warp by warp, whole words alone are told apart, and atomic operations count as writes.
//
// Time counts the places where threads meet. A thread's work at time s is ordered before another's if s is
// before the time at which the other has met it last. Times are never set back, so that a new block only moves on.
class SharedRaces {
 public:
  explicit SharedRaces(std::size_t bytes)
      : words_(bytes / 4), bytes_(bytes), quick_(bytes / 4), copied_by_(bytes / 4, nobody) {}

  // A block of so many threads begins.
  void begin(std::size_t threads);
  // All threads of the block have met.
  void barrier();
  // Lanes of a warp have met in an operation that orders their memory; all: these are all that the warp has.
  void warp(unsigned warp, unsigned mask, bool all);

  using Time = std::uint32_t;
  // Arrivals at an mbarrier: by warp, the time before which all that it did is ordered before a wait.
  using Arrivals = std::vector<Time>;
  // The block has an mbarrier; the thread arrives at one; it has waited for one.
  void use_mbarriers();
  void arrive(Arrivals& arrivals) const;
  void wait(const Arrivals& arrivals);

  // The accesses that follow are this thread's.
  void set_thread(int thread) {
    thread_ = thread;
    const std::size_t warp = static_cast<std::size_t>(thread) / 32;
    warp_key_ = pairs_.empty() ? key(std::max(barrier_, warps_[warp]), warp) : no_key;
  }
  int thread() const { return thread_; }
  // False: it races, and race() names the other access.
  bool access(std::size_t offset, std::size_t bytes, Access kind) {
    if (kind == Access::read && (offset | bytes) % 4 == 0) {
      std::size_t w = offset / 4;
      const std::size_t end = (offset + bytes) / 4;
      while (w < end && (quick_[w] == all_key_ || quick_[w] == warp_key_)) ++w;
      if (w == end) return true;
    }
    return (alone_ && copies_ == 0) || access_slowly(offset, bytes, kind);
  }
  // An asynchronous copy of the thread to whole words begins; it has been waited for. False: it races.
  bool begin_copy(std::size_t offset, std::size_t bytes);
  bool end_copy(std::size_t offset, std::size_t bytes);
  struct Race {
    int thread = 0;         // the other one
    const char* what = "";  // it did
    bool copies = false;    // it has begun a copy, and not waited for it
  };
  // Of the access that was bad.
  const Race& race() const { return race_; }

 private:
  static constexpr Time end_of_time = 1u << 26;  // keys have six bits for the warp
  static constexpr std::size_t all_warps = 32;
  static constexpr std::uint32_t no_key = ~0u;     // nobody's
  static constexpr std::uint16_t nobody = 0xffff;  // no thread
  static std::uint32_t key(Time since, std::size_t warp) { return since << 6 | static_cast<std::uint32_t>(warp); }
  // Of one word or byte: the last write, and the reads or atomic operations since, as lanes of one warp or as several
  // warps'. Those that are ordered before a later one of the same kind are left out: accesses ordered behind the later
  // one are behind them too.
  struct Cell {
    Time written = 0, touched = 0;  // touched: the earliest of those kept
    std::uint32_t lanes = 0;        // none: nobody
    std::uint16_t writer = 0;
    std::uint16_t warp : 6 = 0;
    std::uint16_t several : 1 = 0;  // of other warps too
    std::uint16_t atomic : 1 = 0;
    std::uint16_t split : 1 = 0;  // the bytes of this word have cells of their own
  };
  static_assert(sizeof(Cell) == 16);
  // Accesses without room in a cell: atomic loads, and once lanes have met that aren't all of a warp, every read and
  // atomic operation, since these are then ordered one by one. Until a write behind them, or a barrier.
  struct Touch {
    std::uint16_t thread;
    Access kind;
    Time when;
  };

  bool ordered(int first, Time when, int second) const {
    if (when < barrier_ || first == second) return true;
    if (first / 32 != second / 32) return !waited_.empty() && when < waited(second, first / 32);
    if (when < warps_[static_cast<std::size_t>(first) / 32]) return true;
    return !pairs_.empty() && when < met(second, first % 32);
  }
  Time met(int thread, int lane) const {
    return pairs_[static_cast<std::size_t>(thread) * 32 + static_cast<std::size_t>(lane)];
  }
  Time& met(int thread, int lane) {
    return pairs_[static_cast<std::size_t>(thread) * 32 + static_cast<std::size_t>(lane)];
  }
  Time waited(int thread, int warp) const {
    return waited_[static_cast<std::size_t>(thread) * warps_.size() + static_cast<std::size_t>(warp)];
  }
  Time& waited(int thread, int warp) {
    return waited_[static_cast<std::size_t>(thread) * warps_.size() + static_cast<std::size_t>(warp)];
  }
  bool access_with_mbarriers(std::size_t word, Access kind);
  bool access_slowly(std::size_t offset, std::size_t bytes, Access kind);
  bool access_word(std::size_t word, Access kind);
  bool access_split(std::size_t word, Access kind);
  bool access_bytes(std::size_t offset, std::size_t bytes, Access kind);
  bool access_cell(Cell& c, Access kind);
  bool access_history(const Cell& c, Access kind);
  // Leaves those out that are ordered before this thread.
  void forget_ordered(Cell& c) const;
  void touch(Cell& c, bool atomic) const;
  // Where two have read in this time, a third read changes nothing: whoever writes races with one of them.
  void remember_readers(std::size_t word);
  void split(std::size_t word);
  bool found(int thread, const char* what, bool copies = false);
  void move_on();

  std::vector<Cell> words_;
  std::vector<Cell> bytes_;  // of the words that are split
  // By word: the keys of those whose reads change nothing, of all threads or of one warp's.
  std::vector<std::uint32_t> quick_;
  std::vector<std::uint16_t> copied_by_;  // by word: whose asynchronous copy is on its way there
  std::size_t copies_ = 0;                // words of these
  std::unordered_map<const Cell*, std::vector<Touch>> history_;
  std::uint32_t all_key_ = 1, warp_key_ = 1;
  int thread_ = 0;
  Time now_ = 1, barrier_ = 1;
  std::vector<Time> warps_;  // when all lanes of the warp have met last
  std::vector<Time> pairs_;  // (thread, lane): when it has met that lane of its warp; empty: only whole warps have met
  // (thread, warp): the time before which the warp's work is ordered, by mbarriers; empty: there are none.
  std::vector<Time> waited_;
  // (word, warp): its last read, and the lanes that have read since all of them have met last.
  struct Reads {
    Time when = 0;
    std::uint32_t lanes = 0;
  };
  std::vector<Reads> reads_;
  bool alone_ = true;  // the block is one thread
  Race race_;
};

}  // namespace vgpu
