#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace vgpu {

// A device among all of the node's processes.
struct BoardMember {
  std::int32_t process, device;
  bool operator==(const BoardMember&) const = default;
};

// The waits of a device's NCCL work, for the other devices of the node to read: the board stands behind the bell in the
// device's memory. Where works of NCCL run in the order of their launches, a device does nothing else for other ranks
// before this work has ended; so devices that wait for each other in a circle wait for ever.
struct Board {
  static constexpr int most = 64;

  std::atomic<std::uint64_t> version{0};       // odd while it is written
  std::atomic<std::uint64_t> looked{0};        // how often the device has found itself still waiting
  std::atomic<std::uint64_t> communicator{0};  // 0: waits for nobody
  char text[120] = {};
  std::atomic<int> count{0};
  std::atomic<BoardMember> waits_for[most] = {};

  // By the device's executor.
  void show(std::uint64_t comm, const std::string& what, const std::vector<BoardMember>& members);
  void clear();
};

// A circle of devices, as a text: found twice, with every device of it having looked in between. Called again and again
// by a device that waits; empty while there is none.
class CircleSearch {
 public:
  // board(member): null where this process doesn't know the device.
  template <class BoardOf>
  std::string look(const BoardMember& self, const BoardOf& board_of) {
    const std::vector<BoardMember> circle = find(self, board_of);
    if (circle.empty() || circle != circle_) {
      circle_ = circle;
      marks_.clear();
      for (const BoardMember& m : circle_) marks_.push_back(mark_of(*board_of(m)));
      return "";
    }
    for (std::size_t i = 0; i < circle_.size(); ++i) {
      const Mark now = mark_of(*board_of(circle_[i]));
      if (now.version != marks_[i].version) {
        circle_.clear();
        return "";
      }
      if (now.looked < marks_[i].looked + 2) return "";
    }
    std::string text;
    for (const BoardMember& m : circle_)
      text += "  device " + std::to_string(m.device) + " of process " + std::to_string(m.process) + " is in " +
              board_of(m)->text + "\n";
    return text;
  }

 private:
  struct Mark {
    std::uint64_t version, looked;
  };
  static Mark mark_of(const Board& board) { return {board.version.load(), board.looked.load()}; }

  // A path from `self` along each one's waits, back to `self`, through at least two communicators; depth first.
  template <class BoardOf>
  static std::vector<BoardMember> find(const BoardMember& self, const BoardOf& board_of) {
    std::vector<BoardMember> path{self}, seen{self};
    return extend(path, seen, board_of) ? path : std::vector<BoardMember>();
  }
  template <class BoardOf>
  static bool extend(std::vector<BoardMember>& path, std::vector<BoardMember>& seen, const BoardOf& board_of);

  std::vector<BoardMember> circle_;
  std::vector<Mark> marks_;
};

template <class BoardOf>
bool CircleSearch::extend(std::vector<BoardMember>& path, std::vector<BoardMember>& seen, const BoardOf& board_of) {
  const Board* board = board_of(path.back());
  if (!board || board->version.load() % 2 == 1 || board->communicator == 0) return false;
  for (int i = 0; i < board->count; ++i) {
    const BoardMember next = board->waits_for[i];
    if (next == path.front()) {
      // All in one communicator: a moment of an operation that goes on.
      for (const BoardMember& m : path)
        if (board_of(m)->communicator != board->communicator) return true;
      continue;
    }
    bool known = false;
    for (const BoardMember& m : seen) known = known || m == next;
    if (known) continue;
    seen.push_back(next);
    path.push_back(next);
    if (extend(path, seen, board_of)) return true;
    path.pop_back();
  }
  return false;
}

}  // namespace vgpu
