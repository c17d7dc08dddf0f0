#pragma once

#include <functional>
#include <string>

#include "checkpoint/shard_writer.hpp"
#include "config/directory_lock.hpp"

namespace forge {

// Where and how a run saves.
struct SavePlan {
  std::string directory;                       // checkpoint.directory
  std::int64_t keep_last = 0, keep_every = 0;  // steps that stay, and those that this divides; 0: all, none
  ShardOptions shards = {};
  bool rests = false;             // behind the training (WritingPace): where that uses all cores
  DirectoryLock* lock = nullptr;  // of the first rank, where there is one
  // Of the first rank, in the thread that writes: what must be on the disk before a step is committed.
  std::function<void()> before_commit = nullptr;
  // Called in the thread that writes behind the training when that failed, where it was caught, so that somebody who
  // won't wait for finish() hears of it.
  std::function<void()> failed_behind = nullptr;
};

}  // namespace forge
