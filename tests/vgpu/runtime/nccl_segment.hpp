#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "bell.hpp"
#include "nccl.h"

namespace vgpu {

// The name in an ncclUniqueId: an anonymous file of the process that made it. Nothing is left when processes die.
struct SegmentName {
  char mark[8];
  std::int32_t process, file;
  std::uint64_t number;  // drawn
};
static_assert(sizeof(SegmentName) <= NCCL_UNIQUE_ID_BYTES);
SegmentName name_of(const ncclUniqueId& id);
ncclUniqueId make_id();

enum class Collective : std::int32_t { all_reduce, all_gather, reduce_scatter, broadcast };
const char* name_of(Collective kind);

// A collective as a rank shows it to the others; addresses are offsets in the rank's device memory.
struct Call {
  Collective kind;
  std::int32_t type, operation, root;
  std::uint64_t count, in, out;

  bool matches(const Call& other) const {
    return kind == other.kind && type == other.type && operation == other.operation && root == other.root &&
           count == other.count;
  }
  std::string text() const;
};

// One rank's part of the segment. Numbers of collectives count from 1.
struct alignas(64) RankSlot {
  std::atomic<std::uint32_t> joined;
  std::int32_t process, device, memory_file;
  std::uint64_t memory_bytes, host;  // host: a hash of its name, or of NCCL_HOSTID
  // ---- host meetings
  std::atomic<std::uint32_t> revoked;
  std::atomic<std::uint64_t> meetings;
  std::int32_t color, key;
  ncclUniqueId id;
  // ---- collectives
  std::atomic<std::uint32_t> uses_collectives;  // its host has launched one
  std::atomic<std::uint64_t> shown, finished;   // numbers: call stands there; the rank is done with others' memory
  Call call;
  std::atomic<std::int32_t> error;  // an ncclResult_t that came up by itself
};

// From one rank to another: one message at a time.
struct alignas(64) Channel {
  std::atomic<std::uint32_t> used;  // the sender's host has launched a transfer with the receiver, in any direction
  std::atomic<std::uint64_t> shown, taken;
  std::uint64_t offset, bytes;  // in the sender's device memory
};

// The memory that the ranks of a communicator share. Ranks of one process share its mapping too: to ThreadSanitizer, an
// atomic at two addresses is two atomics, and orders nothing.
class Segment {
 public:
  // Of an id; throws nothing: false in valid() with a reason.
  Segment(const ncclUniqueId& id, int ranks);

  const std::string& problem() const { return problem_; }
  int ranks() const { return ranks_; }
  std::uint64_t number() const { return number_; }
  RankSlot& slot(int rank) const;
  Channel& channel(int from, int to) const;
  // Hosts wait here until something is so; others ring when they have changed something. `what` for messages.
  void wait_until(const std::function<bool()>& so, const std::function<std::string()>& what) const;
  void ring() const;
  // The id's file isn't needed any more, as all have joined.
  void forget_name() const;

 private:
  struct Header;
  Header& header() const { return *reinterpret_cast<Header*>(memory_.get()); }

  SegmentName name_;
  int ranks_;
  std::uint64_t number_ = 0;
  std::shared_ptr<char> memory_;
  std::string problem_;
};

}  // namespace vgpu
