#pragma once

#include <memory>

#include "comm/world.hpp"

namespace forge {

// The only place that starts MPI and knows MPI_COMM_WORLD. Requires MPI_THREAD_MULTIPLE; without a launcher the world
// is one rank, and a launcher's several processes that MPI knows nothing of are refused. Ends MPI when destroyed.
// The watchdog must live longer; it is told of every wait here, and takes part in the roll calls of the ranks in
// between.
class Environment final : public World {
 public:
  Environment(int& argc, char**& argv, Watchdog& watchdog);
  // Waits for all ranks.
  ~Environment() override;

  int rank() const override;
  int size() const override;
  int local_rank() const override;
  int local_size() const override;
  int nodes() const override;
  int node(int rank) const override;
  std::string node_name(int rank) const override;
  std::vector<std::string> first_nodes(std::size_t most) const override;
  Watchdog& watchdog() const override;
  [[noreturn]] void abort(int code) const override;
  std::unique_ptr<Communicator> make_world() const override;

 private:
  struct Implementation;
  void find_nodes();

  std::unique_ptr<Implementation> impl_;
};

}  // namespace forge
