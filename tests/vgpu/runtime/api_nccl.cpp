#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "api.hpp"
#include "nccl.h"
#include "nccl_comm.hpp"
#include "nccl_sum.hpp"
#include "nccl_work.hpp"

// NCCL's calls.

struct ncclComm {
  std::shared_ptr<vgpu::Comm> comm;
};

namespace vgpu {

namespace {

thread_local std::string last_error_text;

ncclResult_t refuse(ncclResult_t result, const std::string& why) {
  last_error_text = why;
  refused(cudaSuccess, "NCCL: " + why);
  return result;
}

struct Given {
  std::shared_ptr<Comm> comm;
  Stream* stream;
  Operation operation;
};
struct Group {
  int depth = 0;
  std::vector<Given> given;
};
thread_local Group group;

// The operations of a group by communicator, in the order of their first ones.
struct Batch {
  std::shared_ptr<Comm> comm;
  Stream* stream;
  std::vector<Operation> operations;
};

std::vector<Batch> batches_of(std::vector<Given> given) {
  std::vector<Batch> batches;
  for (Given& g : given) {
    auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& b) { return b.comm == g.comm; });
    if (batch == batches.end()) batch = batches.insert(batches.end(), {g.comm, g.stream, {}});
    if (batch->stream != g.stream) return {};
    batch->operations.push_back(std::move(g.operation));
  }
  return batches;
}

void connect(const std::vector<Batch>& batches) {
  for (const Batch& b : batches)
    for (const Operation& o : b.operations)
      o.kind == Operation::Kind::collective ? b.comm->show_collective() : b.comm->show_transfer(o.peer);
  for (const Batch& b : batches)
    for (const Operation& o : b.operations)
      o.kind == Operation::Kind::collective ? b.comm->connect_collectives() : b.comm->connect_transfer(o.peer);
}

ncclResult_t launch() {
  std::vector<Given> given = std::move(group.given);
  group.given.clear();
  const bool any = !given.empty();
  const std::vector<Batch> batches = batches_of(std::move(given));
  if (any && batches.empty())
    return refuse(ncclInvalidUsage, "a group gives operations of one communicator to several streams");
  connect(batches);
  for (const Batch& b : batches) {
    if (b.stream->capture) return refuse(ncclInvalidUsage, "NCCL in a stream that is being captured is not emulated");
    count(b.stream->device, "launches of NCCL");
    b.stream->device.give(*b.stream, nccl_work(b.comm, b.operations));
  }
  return ncclSuccess;
}

// The communicator, where the call may be made here.
struct Place {
  ncclResult_t result;
  Stream* stream = nullptr;
};
Place place_of(const char* call, ncclComm_t comm, cudaStream_t handle) {
  const std::string name = call;
  if (!comm) return {refuse(ncclInvalidArgument, name + " without a communicator")};
  const auto [stream, error] = find_stream(handle, call);
  if (!stream) return {ncclInvalidArgument};
  if (&stream->device != &comm->comm->device())
    return {refuse(ncclInvalidArgument, name + " in a stream of another device than the communicator's")};
  if (comm->comm->revoked()) return {refuse(ncclInvalidUsage, name + " in a communicator that was revoked")};
  if (const ncclResult_t error_before = comm->comm->error(); error_before != ncclSuccess) {
    last_error_text = "an earlier operation of the communicator has failed";
    return {error_before};
  }
  return {ncclSuccess, stream};
}

ncclResult_t give(ncclComm_t comm, Stream* stream, Operation operation) {
  ++group.depth;
  group.given.push_back({comm->comm, stream, std::move(operation)});
  return ncclGroupEnd();
}

struct Sizes {
  std::size_t in, out;  // bytes
};

ncclResult_t collective(const char* name, Call call, const void* in, void* out, Sizes sizes, ncclComm_t comm,
                        cudaStream_t handle) {
  const Place place = place_of(name, comm, handle);
  if (!place.stream) return place.result;
  Device& device = place.stream->device;
  const bool root = call.kind != Collective::broadcast || call.root == comm->comm->rank();
  if (call.root < 0 || call.root >= comm->comm->size())
    return refuse(ncclInvalidArgument, std::string(name) + " from rank " + std::to_string(call.root));
  if (sizes.out > 0 && ((root && !on_device(device, in, sizes.in)) || !on_device(device, out, sizes.out)))
    return refuse(ncclInvalidArgument,
                  std::string(name) + " of what isn't live memory of device " + std::to_string(device.number()));
  count(device, name);
  call.in = root && sizes.in > 0 ? device.memory().offset_of(in) : 0;
  call.out = sizes.out > 0 ? device.memory().offset_of(out) : 0;
  return give(comm, place.stream, {Operation::Kind::collective, call, in, out});
}

ncclResult_t check_reduction(const char* name, ncclDataType_t type, ncclRedOp_t operation) {
  if (operation != ncclSum && operation != ncclMax)
    return refuse(ncclInvalidArgument,
                  std::string(name) + " with another operation than ncclSum and ncclMax is not emulated");
  const bool can_compare = type == ncclFloat64 || type == ncclFloat32;
  if (!can_sum(type) || (operation == ncclMax && !can_compare))
    return refuse(ncclInvalidArgument, std::string(name) + " of a type that is not emulated");
  return ncclSuccess;
}

ncclResult_t transfer(Operation::Kind kind, const void* in, void* out, std::size_t count_, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t handle) {
  const char* name = kind == Operation::Kind::send ? "ncclSend" : "ncclRecv";
  const Place place = place_of(name, comm, handle);
  if (!place.stream) return place.result;
  if (peer < 0 || peer >= comm->comm->size())
    return refuse(ncclInvalidArgument,
                  std::string(name) + ": rank " + std::to_string(peer) + " of " + std::to_string(comm->comm->size()));
  const std::size_t bytes = count_ * size_of(type);
  Device& device = place.stream->device;
  if (bytes > 0 && !on_device(device, in ? in : out, bytes))
    return refuse(ncclInvalidArgument,
                  std::string(name) + " of what isn't live memory of device " + std::to_string(device.number()));
  count(device, name);
  Operation operation{kind};
  operation.in = in;
  operation.out = out;
  operation.peer = peer;
  operation.bytes = bytes;
  return give(comm, place.stream, operation);
}

ncclResult_t make(ncclComm_t* made, int ranks, const ncclUniqueId& id, int rank) {
  auto comm = std::make_shared<Comm>(current_device(), ranks, id, rank);
  if (!comm->problem().empty()) return refuse(ncclInvalidUsage, comm->problem());
  *made = new ncclComm{std::move(comm)};
  return ncclSuccess;
}

}  // namespace

}  // namespace vgpu

using vgpu::Call;
using vgpu::Collective;
using vgpu::Operation;
using vgpu::refuse;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) {
  return vgpu::last_error_text.c_str();
}
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

// ---- communicators

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = vgpu::make_id();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return refuse(ncclInvalidArgument,
                  "ncclCommInitRank: rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  if (vgpu::group.depth > 0) return refuse(ncclInvalidUsage, "ncclCommInitRank in a group is not emulated");
  return vgpu::make(comm, ranks, id, rank);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  if (!comm || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
    return refuse(ncclInvalidArgument, "ncclCommSplit: no communicator, or a negative color");
  if (vgpu::group.depth > 0) return refuse(ncclInvalidUsage, "ncclCommSplit in a group is not emulated");
  const int most = config ? config->maxCTAs : NCCL_CONFIG_UNDEF_INT;
  if (config && (config->magic != 0xcafebeef || (most != NCCL_CONFIG_UNDEF_INT && most < 1)))
    return refuse(ncclInvalidArgument, "ncclCommSplit: a configuration that is not initialized, or fewer than 1 block");
  if (config && config->splitShare != NCCL_CONFIG_UNDEF_INT)
    return refuse(ncclInvalidUsage, "ncclCommSplit: shared channels are not emulated");
  *made = nullptr;
  const vgpu::Comm::Part part = comm->comm->split(color, key);
  if (part.size == 0) return ncclSuccess;
  if (most != NCCL_CONFIG_UNDEF_INT)
    comm->comm->device().counters().add("communicators of at most " + std::to_string(most) + " blocks");
  return vgpu::make(made, part.size, part.id, part.rank);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  comm->comm->finish();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  comm->comm->revoke();
  comm->comm->wait_for_works();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  if (!comm || flags != NCCL_REVOKE_DEFAULT)
    return refuse(ncclInvalidArgument, "ncclCommRevoke: no communicator, or flags");
  comm->comm->revoke();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!comm) return refuse(ncclInvalidArgument, "ncclCommGetAsyncError without a communicator");
  *error = comm->comm->error();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* ranks) {
  *ranks = comm->comm->size();
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->comm->rank();
  return ncclSuccess;
}

// ---- operations

ncclResult_t ncclGroupStart() {
  ++vgpu::group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (vgpu::group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return --vgpu::group.depth > 0 ? ncclSuccess : vgpu::launch();
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  if (const ncclResult_t r = vgpu::check_reduction("ncclAllReduce", type, operation); r != ncclSuccess) return r;
  const std::size_t bytes = count * vgpu::size_of(type);
  return vgpu::collective("ncclAllReduce", {Collective::all_reduce, type, operation, 0, count, 0, 0}, in, out,
                          {bytes, bytes}, comm, stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::size_t bytes = count * vgpu::size_of(type);
  const auto ranks = comm ? static_cast<std::size_t>(comm->comm->size()) : 1;
  return vgpu::collective("ncclAllGather", {Collective::all_gather, type, 0, 0, count, 0, 0}, in, out,
                          {bytes, bytes * ranks}, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream) {
  if (const ncclResult_t r = vgpu::check_reduction("ncclReduceScatter", type, operation); r != ncclSuccess) return r;
  const std::size_t bytes = count * vgpu::size_of(type);
  const auto ranks = comm ? static_cast<std::size_t>(comm->comm->size()) : 1;
  return vgpu::collective("ncclReduceScatter", {Collective::reduce_scatter, type, operation, 0, count, 0, 0}, in, out,
                          {bytes * ranks, bytes}, comm, stream);
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::size_t bytes = count * vgpu::size_of(type);
  return vgpu::collective("ncclBroadcast", {Collective::broadcast, type, 0, root, count, 0, 0}, in, out, {bytes, bytes},
                          comm, stream);
}

ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return vgpu::transfer(Operation::Kind::send, in, nullptr, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return vgpu::transfer(Operation::Kind::receive, nullptr, out, count, type, peer, comm, stream);
}

}  // extern "C"
