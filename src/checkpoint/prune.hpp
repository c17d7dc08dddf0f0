#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/save_plan.hpp"
#include "comm/communicator.hpp"

namespace forge {

// Thrown out of a pruning by whoever is called in between: nothing is removed.
struct PruningStops {};

// Removes the steps that keep_last and keep_every leave, but none before the new one has been read back from the disk
// and is what was written, and none in favour of a damaged one. A step that this run didn't write, or whose files have
// changed since, is read and verified before it counts, by all ranks together.
class Pruner {
 public:
  // `nonce`: of the first rank.
  Pruner(const SavePlan& plan, std::string nonce) : plan_(plan), nonce_(std::move(nonce)) {}

  // All ranks, behind the commit of a step of which this rank wrote `written`. `between` is called now and then. Throws
  // the same IoFailed on every rank where the new step is damaged or a removal failed.
  void prune(Communicator& ranks, std::int64_t step, const ShardIndex& written, const std::function<void()>& between);
  // What the first rank has found since: damaged steps, which don't count. For the log.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

 private:
  struct Known {
    std::string files;  // their names, sizes and times when the step was verified
    bool whole = false;
  };
  bool may_go(std::int64_t step) const { return plan_.keep_every == 0 || step % plan_.keep_every != 0; }
  bool read_back(Communicator& ranks, std::int64_t step, const ShardIndex& written,
                 const std::function<void()>& between);
  void remove_older(Communicator& ranks, const std::function<void()>& between);

  const SavePlan& plan_;
  std::string nonce_;
  std::map<std::string, Known> known_;  // by path; of the first rank, as all of the following
  std::vector<std::string> notes_;
};

}  // namespace forge
