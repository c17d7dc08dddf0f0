#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/manifest_pieces.hpp"
#include "checkpoint/shard_writer.hpp"
#include "checkpoint/state.hpp"
#include "comm/communicator.hpp"
#include "config/directory_lock.hpp"
#include "core/recent.hpp"

namespace forge {

// Where and how a run saves.
struct SavePlan {
  std::string directory;                       // checkpoint.directory
  std::int64_t keep_last = 0, keep_every = 0;  // steps that stay, and those that this divides; 0: all, none
  ShardOptions shards = {};
  bool rests = false;             // behind the training (WritingPace): where that uses all cores
  DirectoryLock* lock = nullptr;  // of the first rank, where there is one
  // On the first rank, in the thread that writes: puts on the disk all that must be there before a step is committed.
  std::function<void()> before_commit = nullptr;
  // Called in the thread that writes behind the training when it has caught a failure, for those who won't wait for
  // finish().
  std::function<void()> failed_behind = nullptr;
  int shards_of_piece = most_shards_of_piece;  // of the manifest: for so many ranks it is one file
};

// A rank's files of a step: its shard, and a piece of the manifest where it is the first of one.
struct WrittenStep {
  ShardIndex shard;
  ManifestWriter::File piece;
};

// Thrown by `between` to break off a pruning: nothing is removed.
struct PruningStops {};

// Removes the steps that keep_last and keep_every leave, but none before the new one has been read back from the disk
// without a difference, and none in favour of a damaged one. A step that this run didn't write, or whose files have
// changed since, is read and verified before it counts, by all ranks together.
class Pruner {
 public:
  // `nonce`: of the first rank.
  Pruner(const SavePlan& plan, std::string nonce) : plan_(plan), nonce_(std::move(nonce)) {}

  // All ranks, behind the commit of a step of which this rank wrote `written`. `between` is called now and then. Throws
  // the same IoFailed on every rank where the new step is damaged or a removal failed.
  void prune(Communicator& ranks, std::int64_t step, const WrittenStep& written, const std::function<void()>& between);
  // The first rank's findings since the last call: damaged steps, which don't count. For the log.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  struct Known {
    std::string files;  // their names, sizes and times when the step was verified
    bool whole = false;
  };
  bool may_go(std::int64_t step) const { return plan_.keep_every == 0 || step % plan_.keep_every != 0; }
  bool read_back(Communicator& ranks, std::int64_t step, const WrittenStep& written,
                 const std::function<void()>& between);
  void remove_older(Communicator& ranks, const std::function<void()>& between);

  const SavePlan& plan_;
  std::string nonce_;
  std::map<std::string, Known> known_;  // by path; of the first rank, as all of the following
  std::vector<std::string> notes_;
};

// How fast a checkpoint is written behind the training: hashes and copies cost processor time that the steps need where
// they use all cores. The writing thread works 4 % of its time, for at most three quarters of the time between the last
// two saves, and no longer than until somebody waits for it.
class WritingPace {
 public:
  void start(bool rests);  // of a save
  void hurry();
  void rest();  // by the writing thread, now and then
  // Seconds since the start, less the rests: the time of a save that somebody waits for.
  double seconds_of_work() const;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point started_ = Clock::now(), until_, worked_from_;
  Clock::duration rested_{};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool hurried_ = false;
};

// Saves at once, or behind the training: a copy of the rank's state is written by a thread, with a communicator of its
// own, while the next steps run. At most one is under way. All ranks call the same in the same order.
class CheckpointSaver {
 public:
  // Collective.
  CheckpointSaver(Communicator& ranks, SavePlan plan, bool asynchronous);
  // Waits for the save under way; its errors are lost, so call finish() first.
  ~CheckpointSaver();

  // First waits for the save under way, and throws its error: the same IoFailed on all ranks.
  void save(const CheckpointFacts& facts, const std::vector<StateTensor>& tensors, Stream& stream);
  void finish();
  // The job is about to end: from here on steps are saved, and no older ones are removed.
  void leave() { leaves_ = true; }
  // The step committed last, −1: none yet. After finish() the same on all ranks.
  std::int64_t committed() const { return committed_; }
  // The longest time of a save (RecentTimes), from start to commit, without rests; the one under way counts, too.
  double longest_seconds() const;
  // For the log of the first rank, of the saves that are done; nothing while one is under way.
  std::vector<std::string> take_notes();

 private:
  void write(const CheckpointFacts& facts, const std::vector<StateTensor>& tensors, const CopyToHost& copy);

  std::unique_ptr<Communicator> ranks_;
  SavePlan plan_;
  ManifestWriter manifests_;
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
