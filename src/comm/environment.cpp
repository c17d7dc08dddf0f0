#include "comm/environment.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "comm/device_communicator.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi_check.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/mpi_mail.hpp"
#include "comm/rank_set.hpp"
#include "core/faults.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// "Open MPI v4.1.4".
std::string mpi_version() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  mpi_check(MPI_Get_library_version(version, &length), "MPI_Get_library_version");
  const std::string text(version, to_size(length));
  return text.substr(0, text.find_first_of(",\n\t"));
}

// Returns when all ranks have come here. Cores may have other work.
void meet_all() {
  MPI_Request request = MPI_REQUEST_NULL;
  mpi_check(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
  for (int done = 0; !done; std::this_thread::sleep_for(std::chrono::microseconds(200)))
    mpi_check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
}

}  // namespace

struct Environment::Implementation {
  Watchdog& watchdog;
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  std::vector<std::pair<std::string, RankSet>> nodes;  // name, ranks: in the order of their first ones

  explicit Implementation(Watchdog& w) : watchdog(w) {}
};

Environment::Environment(int& argc, char**& argv, Watchdog& watchdog)
    : impl_(std::make_unique<Implementation>(watchdog)) {
  watchdog.start_other(0, "MPI_Init");
  inject_fault(launched_rank(), "init");
  set_device_environment(launched_rank());  // before MPI's threads, which read the environment
  int provided = MPI_THREAD_SINGLE;
  const std::string others = other_processes_of_launcher(mpi_version());  // before MPI changes the environment
  {
    const LoneStart alone(mpi_version());
    mpi_check(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw LibraryFailed(
        "this MPI gives no MPI_THREAD_MULTIPLE, which forge needs to communicate behind computation; "
        "use an MPI that was built with thread support");
  }
  mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &impl_->rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &impl_->size), "MPI_Comm_size");
  if (impl_->size == 1 && !others.empty()) {  // they would train one model each
    MPI_Finalize();
    throw BadInput(others);
  }
  find_nodes();
  if (impl_->size > 1) {
    // MPI over TCP may write to a rank that is gone, which must not end this one as well.
    if (std::signal(SIGPIPE, SIG_IGN) == SIG_ERR) throw Error("SIGPIPE cannot be ignored");
    watchdog.join(impl_->rank, impl_->size, mpi_mail());
  }
  watchdog.start_other(0, "start");
}

// A node's first rank lists its ranks, those ranks exchange the lists, and hand them out.
void Environment::find_nodes() {
  MPI_Comm shared = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, impl_->rank, MPI_INFO_NULL, &shared),
            "MPI_Comm_split_type");
  mpi_check(MPI_Comm_rank(shared, &impl_->local_rank), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(shared, &impl_->local_size), "MPI_Comm_size");
  int first = impl_->rank;
  mpi_check(MPI_Bcast(&first, 1, MPI_INT, 0, shared), "MPI_Bcast");
  mpi_check(MPI_Comm_free(&shared), "MPI_Comm_free");
  char name[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  mpi_check(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");

  const auto world = make_world();
  const auto node = world->split(first, impl_->rank);
  const auto firsts = world->split(impl_->local_rank == 0 ? 0 : -1, impl_->rank);
  RankSet ranks;
  for (const std::string& rank : node->gather_host(std::to_string(impl_->rank))) ranks.add(std::stoi(rank));
  std::string lists;
  if (firsts)
    for (const std::string& list : firsts->gather_host(std::string(name) + "\t" + ranks.code())) lists += list + "\n";
  node->broadcast_host(lists, 0);
  for (std::size_t at = 0; at < lists.size();) {
    const std::size_t tab = lists.find('\t', at), end = lists.find('\n', tab);
    impl_->nodes.emplace_back(lists.substr(at, tab - at), RankSet::from_code(lists.substr(tab + 1, end - tab - 1)));
    at = end + 1;
  }
}

Environment::~Environment() {
  impl_->watchdog.start_other(0, "end");
  inject_fault(impl_->rank, "end");
  meet_all();
  impl_->watchdog.leave();
  impl_->watchdog.start_other(0, "MPI_Finalize");
  inject_fault(impl_->rank, "finalize");
  MPI_Finalize();
  impl_->watchdog.set({0, 0});
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
  return static_cast<int>(impl_->nodes.size());
}
int Environment::node(int rank) const {
  const auto holds = [rank](const auto& node) { return node.second.contains(rank); };
  const auto found = std::find_if(impl_->nodes.begin(), impl_->nodes.end(), holds);
  return static_cast<int>(found - impl_->nodes.begin());
}
std::string Environment::node_name(int rank) const {
  const auto number = to_size(node(rank));
  return number < impl_->nodes.size() ? impl_->nodes[number].first : "";
}
std::vector<std::string> Environment::first_nodes(std::size_t most) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(most, impl_->nodes.size()); ++i) names.push_back(impl_->nodes[i].first);
  return names;
}
Watchdog& Environment::watchdog() const {
  return impl_->watchdog;
}

void Environment::abort(int code) const {
  // A launcher that doesn't hear, or MPI on its way out, must not keep this rank.
  try {
    std::thread([code] {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      std::_Exit(code);
    }).detach();
  } catch (const std::system_error&) {  // there are no more threads
    std::_Exit(code);
  }
  if (impl_->size > 1)
    MPI_Abort(MPI_COMM_WORLD, code);
  else
    MPI_Finalize();  // it has files to remove
  std::_Exit(code);
}

std::unique_ptr<Communicator> Environment::make_world() const {
  const unsigned cores = std::thread::hardware_concurrency();  // 0: not known
  return MpiCommunicator::world(cores != 0 && static_cast<unsigned>(impl_->local_size) > cores);
}

}  // namespace forge
