#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/prune.hpp"
#include "checkpoint/save_plan.hpp"
#include "checkpoint/state.hpp"
#include "checkpoint/writing_pace.hpp"
#include "comm/communicator.hpp"
#include "core/recent.hpp"

namespace forge {

// Saves at once, or behind the training: a copy of the rank's state is written by a thread, with a communicator of its
// own, while the next steps run. At most one is under way. All ranks call the same in the same order.
class CheckpointSaver {
 public:
  // Collective.
  CheckpointSaver(Communicator& ranks, SavePlan plan, bool asynchronous);
  // Waits for the one under way; what failed there is lost, so that finish() comes first.
  ~CheckpointSaver();

  // First waits for the one under way, and throws what failed there: the same IoFailed on all ranks.
  void save(const CheckpointFacts& facts, const std::vector<StateTensor>& tensors, Stream& stream);
  void finish();
  // The job is about to end: from here on steps are saved, and no older ones are removed.
  void leave() { leaves_ = true; }
  // The step committed last, −1: none yet. After finish() the same on all ranks.
  std::int64_t committed() const { return committed_; }
  // What a save takes at worst (RecentTimes), from its start to the commit, rests aside; the one under way counts, too.
  double longest_seconds() const;
  // For the log of the first rank, of the saves that are done; nothing while one is under way.
  std::vector<std::string> take_notes();

 private:
  void write(const CheckpointFacts& facts, const std::vector<StateTensor>& tensors, const CopyToHost& copy);

  std::unique_ptr<Communicator> ranks_;
  SavePlan plan_;
  bool asynchronous_;
  std::string nonce_;  // of the first rank
  Pruner pruner_;
  std::int64_t committed_ = -1, under_way_ = -1;
  PinnedVector<std::byte> memory_;
  WritingPace pace_;
  std::atomic<bool> leaves_ = false, writes_ = false;
  std::vector<std::string> notes_;  // of the first rank, of the save that is under way or done
  mutable std::mutex mutex_;
  RecentTimes seconds_;
  std::future<void> writing_;  // last: it uses all of the above
};

}  // namespace forge
