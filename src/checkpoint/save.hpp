#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/shard_writer.hpp"
#include "checkpoint/state.hpp"
#include "comm/communicator.hpp"

namespace forge {

struct SavePlan {
  std::string directory;  // checkpoint.directory
  std::int64_t keep_last = 0, keep_every = 0;
  ShardOptions shards;
  bool rests = false;  // behind the training (WritingPace): where that uses all cores
  // Called in the thread that writes behind the training when that failed, where it was caught, so that somebody who
  // won't wait for finish() hears of it.
  std::function<void()> failed_behind = nullptr;
};

// Saves a step; all ranks of `ranks` call it. Each writes its shard and forces it to the disk; when all have said so,
// the first one writes the manifest, gives the directory its name and removes older steps. Throws the same IoFailed on
// every rank where any of it failed: the steps saved before are as they were.
void save_checkpoint(Communicator& ranks, const SavePlan& plan, const CheckpointFacts& facts,
                     const std::vector<StateTensor>& tensors, const CopyToHost& copy);

// How fast a checkpoint is written behind the training: hashes and copies cost processor time that the steps need where
// they use all cores. The writing thread works 4 % of its time, for at most three quarters of what has passed between
// the last two saves, and no longer than until somebody waits for it.
class WritingPace {
 public:
  void start(bool rests);  // of a save
  void hurry();
  void rest();  // by the writing thread, now and then

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point started_ = Clock::now(), until_, worked_from_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hurried_ = false;
};

// Saves at once, or behind the training: a copy of the rank's state is written by a thread, with a communicator of its
// own, while the next steps run. At most one is under way. All ranks call the same in the same order.
class CheckpointSaver {
 public:
  // Collective.
  CheckpointSaver(Communicator& ranks, SavePlan plan, bool asynchronous);
  // Waits for the one under way; what failed there is lost, so that finish() comes first.
  ~CheckpointSaver();

  // First waits for the one under way, and throws what failed there.
  void save(const CheckpointFacts& facts, const std::vector<StateTensor>& tensors, Stream& stream);
  void finish();
  // The step committed last, −1: none yet. After finish() the same on all ranks.
  std::int64_t committed() const { return committed_; }

 private:
  std::unique_ptr<Communicator> ranks_;
  SavePlan plan_;
  bool asynchronous_;
  std::int64_t committed_ = -1, under_way_ = -1;
  std::vector<std::byte> memory_;
  WritingPace pace_;
  std::future<void> writing_;  // last: it uses all of the above
};

}  // namespace forge
