#include <nccl.h>

#include <cstring>
#include <source_location>
#include <string>
#include <utility>

#include "comm/device_communicator.hpp"

namespace forge {

namespace {

void nccl_check(ncclResult_t status, const char* call, std::source_location where = std::source_location::current()) {
  if (status == ncclSuccess) return;
  const char* last = ncclGetLastError(nullptr);
  throw LibraryFailed(
      std::string(call) + ": " + ncclGetErrorString(status) + (last && *last ? std::string(": ") + last : ""), where);
}

// Of types that ranks add.
ncclDataType_t nccl_type(DType type) {
  switch (type) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    default:
      throw Error("NCCL doesn't add values of type " + std::string(name_of(type)));
  }
}

cudaStream_t native(Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

std::size_t bytes(std::int64_t count, DType type) {
  return static_cast<std::size_t>(count) * size_of(type);
}

// Over NCCL, between the devices of the ranks of a host communicator, which it owns and asks for host operations. A
// group of one rank needs no NCCL. NCCL_ALGO and NCCL_PROTO decide whether sums are repeatable between runs.
class NcclCommunicator final : public Communicator {
 public:
  // Collective over the ranks of `host`.
  explicit NcclCommunicator(std::unique_ptr<Communicator> host)
      : Communicator(host->rank(), host->size()), host_(std::move(host)) {
    if (size() == 1) return;
    ncclUniqueId id{};
    if (rank() == 0) nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::string text(id.internal, sizeof id.internal);
    host_->broadcast_host(text, 0);
    std::memcpy(id.internal, text.data(), sizeof id.internal);
    nccl_check(ncclCommInitRank(&comm_, size(), id, rank()), "ncclCommInitRank");
  }
  NcclCommunicator(std::unique_ptr<Communicator> host, ncclComm_t comm)
      : Communicator(host->rank(), host->size()), host_(std::move(host)), comm_(comm) {}
  ~NcclCommunicator() override {
    if (comm_) ncclCommDestroy(comm_);
  }

 protected:
  void do_all_reduce(Stream& stream, std::byte* data, std::int64_t count, DType type) override {
    nccl_check(
        ncclAllReduce(data, data, static_cast<std::size_t>(count), nccl_type(type), ncclSum, comm_, native(stream)),
        "ncclAllReduce");
  }
  void do_all_gather(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count, DType type) override {
    nccl_check(ncclAllGather(in, out, bytes(count, type), ncclUint8, comm_, native(stream)), "ncclAllGather");
  }
  void do_reduce_scatter(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count, DType type) override {
    nccl_check(
        ncclReduceScatter(in, out, static_cast<std::size_t>(count), nccl_type(type), ncclSum, comm_, native(stream)),
        "ncclReduceScatter");
  }
  void do_broadcast(Stream& stream, std::byte* data, std::int64_t count, DType type, int root) override {
    nccl_check(ncclBroadcast(data, data, bytes(count, type), ncclUint8, root, comm_, native(stream)), "ncclBroadcast");
  }
  void do_exchange(Stream& stream, std::span<const Transfer> transfers) override {
    nccl_check(ncclGroupStart(), "ncclGroupStart");
    for (const Transfer& t : transfers)
      if (t.sends)
        nccl_check(ncclSend(t.data, bytes(t.count, t.type), ncclUint8, t.peer, comm_, native(stream)), "ncclSend");
      else
        nccl_check(ncclRecv(t.data, bytes(t.count, t.type), ncclUint8, t.peer, comm_, native(stream)), "ncclRecv");
    nccl_check(ncclGroupEnd(), "ncclGroupEnd");
  }
  void do_gather_host(const std::byte* in, std::byte* out, std::size_t count) override {
    gather_host_by(*host_, in, out, count);
  }
  void do_broadcast_host(std::byte* data, std::size_t count, int root) override {
    broadcast_host_by(*host_, data, count, root);
  }
  void do_collect_host(const std::string& text, int root,
                       const std::function<void(const std::string&)>& take) override {
    collect_host_by(*host_, text, root, take);
  }
  std::unique_ptr<Communicator> do_split(int color, int key) override {
    return with_host(host_->split(color, key), color, key);
  }
  std::unique_ptr<Communicator> do_cartesian(const Grid& grid) override {
    return with_host(host_->cartesian(grid), 0, rank());
  }
  std::unique_ptr<Communicator> do_sub(const Grid& grid, AxisBits axes) override {
    return with_host(host_->sub(axes), grid.group_number(rank(), axes), rank());
  }

 private:
  // The NCCL communicator of `part`'s ranks, all of which give this color; groups of one rank have none.
  std::unique_ptr<Communicator> with_host(std::unique_ptr<Communicator> part, int color, int key) {
    ncclComm_t comm = nullptr;
    const bool several = part && part->size() > 1;
    if (comm_)
      nccl_check(ncclCommSplit(comm_, several ? color : NCCL_SPLIT_NOCOLOR, key, &comm, nullptr), "ncclCommSplit");
    if (!part) return nullptr;
    return std::make_unique<NcclCommunicator>(std::move(part), comm);
  }

  std::unique_ptr<Communicator> host_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Communicator> device_communicator(Communicator& ranks) {
  return std::make_unique<NcclCommunicator>(ranks.duplicate());
}

}  // namespace forge
