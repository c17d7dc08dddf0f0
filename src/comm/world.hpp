#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace forge {

// Where a rank stands among all ranks of the job: processes under MPI (Environment) or threads of one process
// (ThreadRank).
class World {
 public:
  World() = default;
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Among the ranks of this node.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual int nodes() const = 0;
  // The name of a rank's node; empty for ranks of one process.
  virtual std::string node_name(int rank) const = 0;
  // A communicator over all ranks; each call makes one more, in the same order on every rank.
  virtual std::unique_ptr<Communicator> make_world() const = 0;

  // For a watchdog, when an operation of all ranks doesn't end: each rank that still runs calls it, from any thread,
  // with what it is doing. After `seconds`, or sooner when all have called, the first two ranks know who has called:
  // the texts by rank, empty where there is none. The others, and ranks of one process, get nothing. Once in the life
  // of a job.
  virtual std::vector<std::string> roll_call(const std::string& doing, double seconds) const = 0;
  // Ends every rank of the job with this exit code.
  [[noreturn]] virtual void abort(int code) const = 0;
};

// One of the threads of run_ranks (comm/thread_communicator.hpp), which gives it `ranks`.
class ThreadRank final : public World {
 public:
  explicit ThreadRank(Communicator& ranks) : ranks_(ranks) {}

  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  int local_rank() const override { return ranks_.rank(); }
  int local_size() const override { return ranks_.size(); }
  int nodes() const override { return 1; }
  std::string node_name(int) const override { return ""; }
  std::unique_ptr<Communicator> make_world() const override { return ranks_.duplicate(); }
  std::vector<std::string> roll_call(const std::string&, double) const override { return {}; }
  [[noreturn]] void abort(int code) const override { std::_Exit(code); }

 private:
  Communicator& ranks_;
};

}  // namespace forge
