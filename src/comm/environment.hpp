#pragma once

#include <memory>

#include "comm/world.hpp"

namespace forge {

// The only place that starts MPI and knows MPI_COMM_WORLD. Requires MPI_THREAD_MULTIPLE; without a launcher the world
// is one rank. Ends MPI when destroyed.
class Environment final : public World {
 public:
  Environment(int& argc, char**& argv);
  ~Environment() override;

  int rank() const override;
  int size() const override;
  int local_rank() const override;
  int local_size() const override;
  int nodes() const override;
  std::string node_name(int rank) const override;
  std::vector<std::string> roll_call(const std::string& doing, double seconds) const override;
  [[noreturn]] void abort(int code) const override;
  std::unique_ptr<Communicator> make_world() const override;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> impl_;
};

}  // namespace forge
