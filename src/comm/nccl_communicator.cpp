#include <nccl.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <source_location>
#include <string>
#include <utility>

#include "comm/device_communicator.hpp"
#include "comm/library_versions.hpp"
#include "comm/nccl_monitor.hpp"
#include "core/to_size.hpp"

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

// NCCL's communicator of a group, watched for errors. Its end is collective: a rank that fails doesn't wait for the
// others, nor they for it.
class OwnedComm {
 public:
  OwnedComm(ncclComm_t comm, std::shared_ptr<NcclMonitor> monitor) : comm_(comm), monitor_(std::move(monitor)) {
    monitor_->watch(comm_);
  }
  ~OwnedComm() {
    monitor_->forget(comm_);
    if (revoked_ || std::uncaught_exceptions() > exceptions_)
      ncclCommAbort(comm_);
    else
      ncclCommDestroy(comm_);
  }
  OwnedComm(const OwnedComm&) = delete;
  OwnedComm& operator=(const OwnedComm&) = delete;

  ncclComm_t get() const { return comm_; }
  const std::shared_ptr<NcclMonitor>& monitor() const { return monitor_; }
  void revoke() {
    if (revoked_.exchange(true)) return;
    monitor_->forget(comm_);  // its error is that it was revoked
#if NCCL_VERSION_CODE >= 22807
    ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT);  // nobody asks older ones: ranks that are processes end together
#endif
  }

 private:
  ncclComm_t comm_;
  std::shared_ptr<NcclMonitor> monitor_;  // of it and of all that are split off
  const int exceptions_ = std::uncaught_exceptions();
  std::atomic<bool> revoked_{false};
};

std::shared_ptr<OwnedComm> join(Communicator& host) {
  if (host.size() == 1) return nullptr;
  ncclUniqueId id{};
  if (host.rank() == 0) nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::string text(id.internal, sizeof id.internal);
  host.broadcast_host(text, 0);
  std::memcpy(id.internal, text.data(), sizeof id.internal);
  ncclComm_t comm = nullptr;
  nccl_check(ncclCommInitRank(&comm, host.size(), id, host.rank()), "ncclCommInitRank");
  return std::make_shared<OwnedComm>(comm, std::make_shared<NcclMonitor>());
}

// Over NCCL, between the devices of the ranks of a host communicator, which it owns and asks for host operations. A
// group of one rank needs no NCCL. Sums are repeatable between runs with one algorithm: set_device_environment().
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<OwnedComm> comm)
      : Communicator(host->rank(), host->size()), host_(std::move(host)), owned_(std::move(comm)) {
    if (!owned_) return;
    comm_ = owned_->get();
    on_failure_ = on_failure_of(*host_, [this] { owned_->revoke(); });
  }
  void limit_blocks(int most) override { most_blocks_ = most; }

 protected:
  void do_all_reduce(Stream& stream, std::byte* data, std::int64_t count, DType type) override {
    all_reduce_by(stream, data, count, type, ncclSum);
  }
  void do_all_reduce_max(Stream& stream, std::byte* data, std::int64_t count, DType type) override {
    all_reduce_by(stream, data, count, type, ncclMax);
  }
  void do_all_gather(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count, DType type) override {
    nccl_check(ncclAllGather(in, out, byte_count(count, type), ncclUint8, comm_, native(stream)), "ncclAllGather");
  }
  void do_reduce_scatter(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count, DType type) override {
    nccl_check(ncclReduceScatter(in, out, to_size(count), nccl_type(type), ncclSum, comm_, native(stream)),
               "ncclReduceScatter");
  }
  void do_reduce_scatter_blocks(Stream& stream, std::byte* data, std::int64_t blocks, std::int64_t count,
                                DType type) override {
    nccl_check(ncclGroupStart(), "ncclGroupStart");
    Communicator::do_reduce_scatter_blocks(stream, data, blocks, count, type);
    nccl_check(ncclGroupEnd(), "ncclGroupEnd");
  }
  void do_broadcast(Stream& stream, std::byte* data, std::int64_t count, DType type, int root) override {
    nccl_check(ncclBroadcast(data, data, byte_count(count, type), ncclUint8, root, comm_, native(stream)),
               "ncclBroadcast");
  }
  void do_exchange(Stream& stream, std::span<const Transfer> transfers) override {
    nccl_check(ncclGroupStart(), "ncclGroupStart");
    for (const Transfer& t : transfers)
      if (t.sends)
        nccl_check(ncclSend(t.data, byte_count(t.count, t.type), ncclUint8, t.peer, comm_, native(stream)), "ncclSend");
      else
        nccl_check(ncclRecv(t.data, byte_count(t.count, t.type), ncclUint8, t.peer, comm_, native(stream)), "ncclRecv");
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
  void do_collect_host(std::int64_t number, std::int64_t* all, int root) override {
    collect_host_by(*host_, number, all, root);
  }
  void do_reduce_host(std::span<double> values, HostReduction reduction) override {
    reduce_host_by(*host_, values, reduction);
  }
  void do_reduce_host(std::span<std::int64_t> values, HostReduction reduction) override {
    reduce_host_by(*host_, values, reduction);
  }
  std::unique_ptr<Communicator> do_node() override { return host_->node(); }
  std::unique_ptr<Communicator> do_split(int color, int key) override {
    return with_host(host_->split(color, key), color, key);
  }
  std::unique_ptr<Communicator> do_cartesian(const Grid& grid) override {
    return std::make_unique<NcclCommunicator>(host_->cartesian(grid), owned_);
  }
  std::unique_ptr<Communicator> do_sub(const Grid& grid, AxisBits axes) override {
    return with_host(host_->sub(axes), grid.group_number(rank(), axes), rank());
  }

 private:
  void all_reduce_by(Stream& stream, std::byte* data, std::int64_t count, DType type, ncclRedOp_t operation) {
    nccl_check(ncclAllReduce(data, data, to_size(count), nccl_type(type), operation, comm_, native(stream)),
               "ncclAllReduce");
  }
  // The NCCL communicator of `part`'s ranks, all of which give this color; groups of one rank have none. None shares
  // channels with its parent (splitShare): NCCL forbids those to work side by side, as groups here do.
  std::unique_ptr<Communicator> with_host(std::unique_ptr<Communicator> part, int color, int key) {
    ncclComm_t comm = nullptr;
    const bool several = part && part->size() > 1;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (most_blocks_ > 0) config.maxCTAs = most_blocks_;
    if (comm_)
      nccl_check(ncclCommSplit(comm_, several ? color : NCCL_SPLIT_NOCOLOR, key, &comm, &config), "ncclCommSplit");
    if (!part) return nullptr;
    return std::make_unique<NcclCommunicator>(std::move(part),
                                              comm ? std::make_shared<OwnedComm>(comm, owned_->monitor()) : nullptr);
  }

  std::unique_ptr<Communicator> host_;
  std::shared_ptr<OwnedComm> owned_;  // may be that of all ranks, which cartesian() shares
  ncclComm_t comm_ = nullptr;
  int most_blocks_ = 0;
  std::shared_ptr<void> on_failure_;
};

}  // namespace

std::unique_ptr<Communicator> device_communicator(Communicator& ranks) {
  std::unique_ptr<Communicator> host = ranks.duplicate();
  std::shared_ptr<OwnedComm> comm = join(*host);
  return std::make_unique<NcclCommunicator>(std::move(host), std::move(comm));
}

bool devices_are_shared() {
  const char* value = std::getenv("FORGE_SHARE_GPU");
  const std::string text = value ? value : "";
  if (text != "" && text != "0" && text != "1")
    throw BadInput("FORGE_SHARE_GPU=" + text + ": legal: 1 (ranks may share a GPU, for tests of correctness), or 0");
  return text == "1";
}

// The guide of NCCL warns of deadlocks where communicators work side by side without an order; releases before 2.26
// don't read the variable. Rings for sums alone: before 2.24 there are no lists by function. A rank has some 24
// streams, with those of NCCL, and a device eight queues by default.
//
// NCCL refuses two ranks on one device where their hosts agree too, so each says that it is a host of its own; hosts
// talk over the loopback interface, with few blocks each, as they take turns on the device.
void set_device_environment(int rank) {
  const auto set = [](const char* name, const std::string& value) {
    constexpr int keep_what_is_set = 0;
    setenv(name, value.c_str(), keep_what_is_set);
  };
  int version = 0;
  nccl_check(ncclGetVersion(&version), "ncclGetVersion");
  set("NCCL_ALGO", version >= 22400 ? "allreduce:ring;reducescatter:ring" : "Ring");
  set("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
  set("CUDA_DEVICE_MAX_CONNECTIONS", "32");
  if (!devices_are_shared()) return;
  set("NCCL_HOSTID", "rank" + std::to_string(rank));
  set("NCCL_NET", "Socket");
  set("NCCL_SOCKET_IFNAME", "lo");
  set("NCCL_IB_DISABLE", "1");
  set("NCCL_MNNVL_ENABLE", "0");
  set("NCCL_NVLS_ENABLE", "0");
  set("NCCL_RAS_ENABLE", "0");
  set("NCCL_MAX_CTAS", "2");
}

std::string nccl_version() {
  int version = 0;
  nccl_check(ncclGetVersion(&version), "ncclGetVersion");
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace forge
