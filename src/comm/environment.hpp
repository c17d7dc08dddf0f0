#pragma once

#include <memory>

#include "comm/communicator.hpp"

namespace forge {

// The only place that starts MPI and knows MPI_COMM_WORLD. Requires MPI_THREAD_MULTIPLE; without a launcher the world
// is one rank. Ends MPI when destroyed.
class Environment {
 public:
  Environment(int& argc, char**& argv);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  int rank() const;
  int size() const;
  // Among the ranks of this node.
  int local_rank() const;
  int local_size() const;
  int nodes() const;
  // Ends every rank of the job with this exit code.
  [[noreturn]] void abort(int code) const;
  // A communicator over the whole world; each call makes one more, in the same order on every rank.
  std::unique_ptr<Communicator> make_world() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> impl_;
};

}  // namespace forge
