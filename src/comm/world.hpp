#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/watchdog.hpp"

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
  // The rank's number among the ranks of this node.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual int nodes() const = 0;
  // The number of a rank's node, by the nodes' first ranks.
  virtual int node(int rank) const = 0;
  // The number of consecutive ranks on each node, where it is the same for all; else 0. Tests give a job nodes of
  // FORGE_RANKS_PER_NODE ranks.
  int node_ranks() const;
  // The name of a rank's node; empty for ranks of one process.
  virtual std::string node_name(int rank) const = 0;
  // The names of the first nodes, so many at most; none for ranks of one process.
  virtual std::vector<std::string> first_nodes(std::size_t most) const = 0;
  // A communicator over all ranks; each call makes one more, in the same order on every rank.
  virtual std::unique_ptr<Communicator> make_world() const = 0;
  // The watchdog, to be told of this rank's activity.
  virtual Watchdog& watchdog() const = 0;
  // Ends every rank of the job with this exit code.
  [[noreturn]] virtual void abort(int code) const = 0;
};

// One of the threads of run_ranks (comm/thread_communicator.hpp), which gives it `ranks`.
class ThreadRank : public World {
 public:
  ThreadRank(Communicator& ranks, Watchdog& watchdog) : ranks_(ranks), watchdog_(watchdog) {}

  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  int local_rank() const override { return ranks_.rank(); }
  int local_size() const override { return ranks_.size(); }
  int nodes() const override { return 1; }
  int node(int) const override { return 0; }
  std::string node_name(int) const override { return ""; }
  std::vector<std::string> first_nodes(std::size_t) const override { return {}; }
  std::unique_ptr<Communicator> make_world() const override { return ranks_.duplicate(); }
  Watchdog& watchdog() const override { return watchdog_; }
  [[noreturn]] void abort(int code) const override { std::_Exit(code); }

 private:
  Communicator& ranks_;
  Watchdog& watchdog_;
};

}  // namespace forge
