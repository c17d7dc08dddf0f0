#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "board.hpp"

namespace vgpu {

class Memory;

// The works of NCCL of one device. In launch order they run one at a time, in the order in which the host launched
// them, whatever streams they are in: NCCL promises progress only to programs whose ranks launch in one order. Free,
// any whose stream has come to it may run: a missing event then shows. Which of the two is drawn by seed, unless it is
// set.
class NcclTurns {
 public:
  NcclTurns(int device, Memory& memory);

  // The number of this launch, from 1.
  std::int64_t launched(const void* work);
  void ended(const void* work);
  bool turn(const void* work) const;
  // The number of the launch that fails on demand; 0: none.
  std::int64_t fault() const { return fault_; }

  // For the board of the device; ends the process where devices wait in a circle.
  void waits_for(std::uint64_t comm, const std::string& what, const std::vector<BoardMember>& missing);
  void waits_for_nobody();
  void know(const BoardMember& member, Board* board);
  bool waits() const { return waits_; }

 private:
  Memory& memory_;
  BoardMember self_;
  bool in_order_;
  std::int64_t fault_ = 0, launched_ = 0;
  mutable std::mutex mutex_;
  std::deque<const void*> order_;
  std::map<std::pair<int, int>, Board*> boards_;
  CircleSearch search_;
  bool waits_ = false;  // of the executor
};

}  // namespace vgpu
