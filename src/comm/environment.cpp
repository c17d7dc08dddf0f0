#include "comm/environment.hpp"

#include <cstdlib>
#include <thread>

#include "comm/mpi_check.hpp"
#include "comm/mpi_communicator.hpp"

namespace forge {

namespace {

// Open MPI starts a daemon for a process that has no launcher, unless it is told that the process stays alone.
void stay_alone_without_launcher() {
  for (const char* launched : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"})
    if (std::getenv(launched)) return;
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
}

}  // namespace

struct Environment::Implementation {
  int rank = 0, size = 1, local_rank = 0, local_size = 1, nodes = 1;
};

Environment::Environment(int& argc, char**& argv) : impl_(std::make_unique<Implementation>()) {
  stay_alone_without_launcher();
  int provided = MPI_THREAD_SINGLE;
  mpi_check(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw Error(
        "this MPI gives no MPI_THREAD_MULTIPLE, which forge needs to communicate behind computation; "
        "use an MPI that was built with thread support");
  }
  mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &impl_->rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &impl_->size), "MPI_Comm_size");
  MPI_Comm node = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, impl_->rank, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  mpi_check(MPI_Comm_rank(node, &impl_->local_rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(node, &impl_->local_size), "MPI_Comm_size");
  mpi_check(MPI_Comm_free(&node), "MPI_Comm_free");
  const int first_of_node = impl_->local_rank == 0;
  mpi_check(MPI_Allreduce(&first_of_node, &impl_->nodes, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
}

Environment::~Environment() {
  MPI_Finalize();
}

int Environment::rank() const {
  return impl_->rank;
}
int Environment::size() const {
  return impl_->size;
}
int Environment::local_rank() const {
  return impl_->local_rank;
}
int Environment::local_size() const {
  return impl_->local_size;
}
int Environment::nodes() const {
  return impl_->nodes;
}

void Environment::abort(int code) const {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

std::unique_ptr<Communicator> Environment::make_world() const {
  const unsigned cores = std::thread::hardware_concurrency();  // 0: not known
  return MpiCommunicator::world(cores != 0 && static_cast<unsigned>(impl_->local_size) > cores);
}

}  // namespace forge
