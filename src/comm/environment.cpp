#include "comm/environment.hpp"

#include <algorithm>
#include <array>
#include <chrono>
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

constexpr int roll_call_answerers = 2;  // the second one answers where the first one is the rank that hangs

using NodeName = std::array<char, MPI_MAX_PROCESSOR_NAME>;

struct Environment::Implementation {
  MPI_Comm roll_call = MPI_COMM_NULL;  // of its own: a message of the training must not meet it
  int rank = 0, size = 1, local_rank = 0, local_size = 1, nodes = 1;
  std::vector<NodeName> node_names;  // by rank
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
  mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &impl_->roll_call), "MPI_Comm_dup");
  mpi_check(MPI_Allreduce(&first_of_node, &impl_->nodes, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
  NodeName name{};
  int length = 0;
  mpi_check(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  impl_->node_names.resize(static_cast<std::size_t>(impl_->size));
  mpi_check(MPI_Allgather(name.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, impl_->node_names.data(),
                          MPI_MAX_PROCESSOR_NAME, MPI_CHAR, MPI_COMM_WORLD),
            "MPI_Allgather");
}

Environment::~Environment() {
  MPI_Comm_free(&impl_->roll_call);
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
std::string Environment::node_name(int rank) const {
  return impl_->node_names.at(static_cast<std::size_t>(rank)).data();
}

std::vector<std::string> Environment::roll_call(const std::string& doing, double seconds) const {
  std::vector<MPI_Request> requests;
  for (int to = 0; to < std::min(roll_call_answerers, impl_->size); ++to) {
    requests.emplace_back();
    mpi_check(
        MPI_Isend(doing.data(), static_cast<int>(doing.size()), MPI_CHAR, to, 0, impl_->roll_call, &requests.back()),
        "MPI_Isend");
  }
  std::vector<std::string> answers(impl_->rank < roll_call_answerers ? static_cast<std::size_t>(impl_->size) : 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const auto all_answered = [&] {
    return std::none_of(answers.begin(), answers.end(), [](const std::string& a) { return a.empty(); });
  };
  while (!all_answered() && std::chrono::steady_clock::now() < end) {
    int arrived = 0, length = 0;
    MPI_Status status;
    mpi_check(MPI_Iprobe(MPI_ANY_SOURCE, 0, impl_->roll_call, &arrived, &status), "MPI_Iprobe");
    if (!arrived) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    mpi_check(MPI_Get_count(&status, MPI_CHAR, &length), "MPI_Get_count");
    std::string text(static_cast<std::size_t>(length), '\0');
    mpi_check(MPI_Recv(text.data(), length, MPI_CHAR, status.MPI_SOURCE, 0, impl_->roll_call, MPI_STATUS_IGNORE),
              "MPI_Recv");
    answers[static_cast<std::size_t>(status.MPI_SOURCE)] = text;
  }
  return answers;  // who called is about to abort: the sends are left as they are
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
