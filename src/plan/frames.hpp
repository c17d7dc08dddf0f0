#pragma once

#include <array>
#include <optional>

#include "core/to_size.hpp"
#include "plan/pass_memo.hpp"
#include "plan/rank_share.hpp"
#include "plan/tasks.hpp"

namespace forge {

// The frames of the workspace along a list of tasks: open frames, and each task's own.
class Frames {
 public:
  // Both must live longer than this object.
  Frames(const BufferContext& c, const RankShare& share) : c_(c), share_(share) {}

  // Goes on to the next task: the bytes while it runs.
  std::size_t run(const Task& task);

  std::size_t most = 0;
  Task task{};  // the first that reaches `most`, where that isn't 0
  // Of the pair at hand or the last one: the most of each track, which has a stack of its own.
  const std::array<std::size_t, 2>& most_of_tracks() const { return most_of_tracks_; }

 private:
  // A stack of the workspace.
  struct Stack {
    std::array<std::size_t, layer_memory_count> open{};
    std::size_t now = 0;
  };

  // The task's bytes beside the open frames; none where it computes nothing in the workspace.
  std::optional<std::size_t> own_bytes(const Task& task);

  const BufferContext& c_;
  const RankShare& share_;
  PassMemo<std::size_t> scratch_;
  Stack run_;
  std::array<Stack, 2> tracks_;
  std::array<std::size_t, 2> most_of_tracks_{};
};

}  // namespace forge
