#include "mpi_recorder.hpp"

#include <mpi.h>

#include <mutex>

namespace forge::test {

namespace {

thread_local int depth = 0;

// Of the process: a wrapper has no other place to remember.
struct Record {
  std::mutex mutex;
  std::map<std::vector<int>, HandedOver> by_ranks;
  std::map<MPI_Comm, std::vector<int>> ranks;
};
Record& record() {
  static Record all;
  return all;
}

std::vector<int> ranks_of(MPI_Comm comm) {
  MPI_Group group, world;
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  int size = 0;
  PMPI_Group_size(group, &size);
  std::vector<int> own(static_cast<std::size_t>(size)), translated(own.size());
  for (int i = 0; i < size; ++i) own[static_cast<std::size_t>(i)] = i;
  PMPI_Group_translate_ranks(group, size, own.data(), world, translated.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  return translated;
}

// Adds what `of_call` says of a call with so many elements of a type, on a communicator of n ranks.
template <class F>
void add(MPI_Comm comm, int count, MPI_Datatype type, F of_call) {
  int size = 0;
  PMPI_Type_size(type, &size);
  Record& r = record();
  std::lock_guard lock(r.mutex);
  auto known = r.ranks.find(comm);
  if (known == r.ranks.end()) known = r.ranks.emplace(comm, ranks_of(comm)).first;
  HandedOver& handed = r.by_ranks[known->second];
  of_call(handed, std::int64_t{count}, std::int64_t{size}, static_cast<std::int64_t>(known->second.size()));
  ++handed.calls;
}

void forget(MPI_Comm comm) {
  Record& r = record();
  std::lock_guard lock(r.mutex);
  r.ranks.erase(comm);
}

struct Inside {
  Inside() { ++depth; }
  ~Inside() { --depth; }
};

void as_message(HandedOver& h, std::int64_t k, std::int64_t size, std::int64_t) {
  h.messages += k * size;
}
void as_host_message(HandedOver& h, std::int64_t k, std::int64_t size, std::int64_t) {
  h.host += k * size;
}
void as_all_reduce(HandedOver& h, std::int64_t k, std::int64_t size, std::int64_t n) {
  h.all_reduce += 2 * k * (n - 1) / n * size;
}
void as_all_gather(HandedOver& h, std::int64_t k, std::int64_t size, std::int64_t n) {
  h.all_gather += k * (n - 1) * size;
}
void as_host_all_gather(HandedOver& h, std::int64_t k, std::int64_t size, std::int64_t n) {
  h.host += k * (n - 1) * size;
}

}  // namespace

std::map<std::vector<int>, HandedOver> handed_over() {
  std::lock_guard lock(record().mutex);
  return record().by_ranks;
}

void forget_handed_over() {
  std::lock_guard lock(record().mutex);
  record().by_ranks.clear();
}

bool inside_mpi() {
  return depth > 0;
}

const std::vector<std::string>& known_mpi_functions() {
  static const std::vector<std::string> names{
      // wrapped
      "MPI_Isend", "MPI_Send", "MPI_Iallreduce", "MPI_Allreduce", "MPI_Iallgather", "MPI_Allgather", "MPI_Gather",
      "MPI_Ibcast", "MPI_Bcast", "MPI_Irecv", "MPI_Recv", "MPI_Waitall", "MPI_Testall", "MPI_Comm_free",
      "MPI_Type_size",
      // neither send nor belong to a step
      "MPI_Abort", "MPI_Barrier", "MPI_Cart_create", "MPI_Cart_sub", "MPI_Comm_dup", "MPI_Comm_group", "MPI_Comm_rank",
      "MPI_Comm_set_errhandler", "MPI_Comm_size", "MPI_Comm_split", "MPI_Comm_split_type", "MPI_Error_class",
      "MPI_Error_string", "MPI_Finalize", "MPI_Finalized", "MPI_Get_count", "MPI_Get_library_version",
      "MPI_Get_processor_name", "MPI_Group_translate_ranks", "MPI_Ibarrier", "MPI_Improbe", "MPI_Imrecv",
      "MPI_Init_thread", "MPI_Initialized", "MPI_Iprobe", "MPI_Op_create", "MPI_Op_free", "MPI_Test", "MPI_Wait"};
  return names;
}

}  // namespace forge::test

// The wrappers, under MPI's names; the linker takes these before the library's.
extern "C" {

using forge::test::Inside;

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  const Inside inside;
  forge::test::add(comm, count, type, forge::test::as_message);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  const Inside inside;
  forge::test::add(comm, count, type, forge::test::as_host_message);
  return PMPI_Send(data, count, type, to, tag, comm);
}
int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  const Inside inside;
  forge::test::add(comm, count, type, forge::test::as_all_reduce);
  return PMPI_Iallreduce(in, out, count, type, op, comm, request);
}
int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const Inside inside;
  forge::test::add(comm, count, type, [](auto& h, auto k, auto size, auto n) { h.host += 2 * k * (n - 1) / n * size; });
  return PMPI_Allreduce(in, out, count, type, op, comm);
}
int MPI_Iallgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int count, MPI_Datatype type,
                   MPI_Comm comm, MPI_Request* request) {
  const Inside inside;
  forge::test::add(comm, count, type, forge::test::as_all_gather);
  return PMPI_Iallgather(in, in_count, in_type, out, count, type, comm, request);
}
int MPI_Allgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int count, MPI_Datatype type,
                  MPI_Comm comm) {
  const Inside inside;
  forge::test::add(comm, count, type, forge::test::as_host_all_gather);
  return PMPI_Allgather(in, in_count, in_type, out, count, type, comm);
}
// The least: each sends its own part, but for the root.
int MPI_Gather(const void* in, int in_count, MPI_Datatype in_type, void* out, int count, MPI_Datatype type, int root,
               MPI_Comm comm) {
  const Inside inside;
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  forge::test::add(comm, rank == root ? 0 : in_count, in_type, forge::test::as_host_message);
  return PMPI_Gather(in, in_count, in_type, out, count, type, root, comm);
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  const Inside inside;
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  if (rank == root)
    forge::test::add(comm, count, type, [](auto& h, auto k, auto size, auto) { h.broadcast += k * size; });
  return PMPI_Ibcast(data, count, type, root, comm, request);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  const Inside inside;
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  if (rank == root) forge::test::add(comm, count, type, forge::test::as_host_message);
  return PMPI_Bcast(data, count, type, root, comm);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  const Inside inside;
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}
int MPI_Recv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
  const Inside inside;
  return PMPI_Recv(data, count, type, from, tag, comm, status);
}
int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  const Inside inside;
  return PMPI_Waitall(count, requests, statuses);
}
int MPI_Testall(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  const Inside inside;
  return PMPI_Testall(count, requests, flag, statuses);
}
int MPI_Comm_free(MPI_Comm* comm) {
  const Inside inside;
  forge::test::forget(*comm);
  return PMPI_Comm_free(comm);
}
}
