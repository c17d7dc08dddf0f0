#include "nccl_comm.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "fail.hpp"
#include "machine.hpp"

namespace vgpu {

namespace {

// "NCCL_ALGO=Ring", or "NCCL_ALGO unset".
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return std::string(name) + (value ? "=" : " unset") + (value ? value : "");
}

std::uint64_t host_hash() {
  const char* id = std::getenv("NCCL_HOSTID");
  return std::hash<std::string>()(id ? id : "");
}

}  // namespace

char* map_device(int process, int device, int file, std::size_t bytes) {
  if (process == getpid()) return Machine::get().device(device).memory().file_memory();
  static std::mutex mutex;
  static auto& mapped = *new std::map<std::pair<int, int>, char*>;
  const std::lock_guard lock(mutex);
  char*& memory = mapped[{process, device}];
  if (memory) return memory;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* p =
      opened < 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, opened, 0);
  if (opened >= 0) close(opened);
  if (p == MAP_FAILED)
    fail("the memory of device " + std::to_string(device) + " of process " + std::to_string(process) +
         " cannot be mapped: " + std::strerror(errno));
  return memory = static_cast<char*>(p);
}

Comm::Comm(Device& device, int ranks, const ncclUniqueId& id, int rank)
    : device_(device), rank_(rank), segment_(id, ranks) {
  problem_ = segment_.problem();
  if (!problem_.empty()) return;
  join();
  problem_ = duplicates();
  segment_.forget_name();
  if (problem_.empty()) map_peers();
  std::string environment = variable("NCCL_ALGO");
  for (const char* name : {"NCCL_PROTO", "NCCL_LAUNCH_ORDER_IMPLICIT", "CUDA_DEVICE_MAX_CONNECTIONS"})
    environment += ", " + variable(name);
  device.counters().add("communicators of " + environment);
}

void Comm::join() {
  RankSlot& own = slot(rank_);
  if (own.joined != 0)
    fail("ncclCommInitRank: two ranks of " + std::to_string(size()) + " say that they are rank " +
         std::to_string(rank_));
  own.process = getpid();
  own.device = device_.number();
  own.memory_file = device_.memory().file();
  own.memory_bytes = device_.memory().file_bytes();
  own.host = host_hash();
  own.joined = 1;
  segment_.ring();
  const auto missing = [this] {
    for (int r = 0; r < size(); ++r)
      if (slot(r).joined == 0) return r;
    return -1;
  };
  segment_.wait_until([&] { return missing() < 0; },
                      [&] {
                        return "ncclCommInitRank of " + std::to_string(size()) + " ranks; rank " +
                               std::to_string(missing()) + " has not come";
                      });
}

// As NCCL: two ranks of one communicator on one device of one host.
std::string Comm::duplicates() const {
  for (int a = 0; a < size(); ++a)
    for (int b = a + 1; b < size(); ++b)
      if (slot(a).device == slot(b).device && slot(a).host == slot(b).host)
        return "Duplicate GPU detected: rank " + std::to_string(a) + " and rank " + std::to_string(b) +
               " are both on device " + std::to_string(slot(a).device);
  return "";
}

void Comm::map_peers() {
  for (int r = 0; r < size(); ++r) {
    const RankSlot& s = slot(r);
    char* memory = map_device(s.process, s.device, s.memory_file, s.memory_bytes);
    peers_.push_back({memory, Memory::bell_in(memory), Memory::board_in(memory)});
    device_.nccl().know({s.process, s.device}, peers_.back().board);
  }
}

BoardMember Comm::member(int rank) const {
  return {slot(rank).process, slot(rank).device};
}

void Comm::ring(int rank) const {
  peers_[static_cast<std::size_t>(rank)].bell->ring();
}

void Comm::ring_all() const {
  for (int r = 0; r < size(); ++r) ring(r);
}

// ---- hosts

void Comm::meet(const char* call) {
  const std::uint64_t number = ++meetings_;
  slot(rank_).meetings = number;
  segment_.ring();
  int missing = 0;
  segment_.wait_until(
      [&] {
        for (int r = 0; r < size(); ++r)
          if (slot(r).meetings < number) {
            missing = r;
            return other_revoked();
          }
        return true;
      },
      [&] {
        return std::string(call) + " on rank " + std::to_string(rank_) + "; rank " + std::to_string(missing) +
               " has not come";
      });
}

Comm::Part Comm::split(int color, int key) {
  slot(rank_).color = color;
  slot(rank_).key = key;
  meet("ncclCommSplit");
  std::vector<int> members;
  for (int r = 0; r < size(); ++r)
    if (color >= 0 && slot(r).color == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return slot(a).key < slot(b).key; });
  const bool leads = !members.empty() && members.front() == rank_;
  if (leads) slot(rank_).id = make_id();
  meet("ncclCommSplit");
  if (members.empty()) return {};
  const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
  return {slot(members.front()).id, static_cast<int>(place), static_cast<int>(members.size())};
}

void Comm::show_collective() {
  if (slot(rank_).uses_collectives.exchange(1) == 0) segment_.ring();
}

void Comm::connect_collectives() {
  if (collectives_connected_) return;
  collectives_connected_ = true;
  int missing = 0;
  segment_.wait_until(
      [&] {
        for (int r = 0; r < size(); ++r)
          if (slot(r).uses_collectives == 0) {
            missing = r;
            return other_revoked();
          }
        return true;
      },
      [&] {
        return "the first collective of a communicator, on rank " + std::to_string(rank_) + "; rank " +
               std::to_string(missing) + " has launched none";
      });
}

void Comm::show_transfer(int peer) {
  if (segment_.channel(rank_, peer).used.exchange(1) == 0) segment_.ring();
}

void Comm::connect_transfer(int peer) {
  if (peer == rank_ || !transfers_connected_.insert(peer).second) return;
  segment_.wait_until([&] { return segment_.channel(peer, rank_).used != 0 || other_revoked(); },
                      [&] {
                        return "the first transfer between ranks " + std::to_string(rank_) + " and " +
                               std::to_string(peer) + "; rank " + std::to_string(peer) + " has launched none";
                      });
}

void Comm::wait_for_works() {
  device_.wait_until([this] { return pending_ == 0; });
}

void Comm::finish() {
  wait_for_works();
  if (!revoked_ && problem_.empty()) meet("ncclCommDestroy");
}

void Comm::revoke() {
  revoked_ = true;
  if (problem_.empty()) {
    slot(rank_).revoked = 1;
    segment_.ring();
  }
  device_.ring();
}

bool Comm::other_revoked() const {
  for (int r = 0; r < size(); ++r)
    if (slot(r).revoked != 0) return true;
  return false;
}

void Comm::set_error(ncclResult_t error) {
  slot(rank_).error = error;
}

ncclResult_t Comm::error() const {
  for (int r = 0; r < size(); ++r)
    if (const std::int32_t error = slot(r).error; error != ncclSuccess)
      return r == rank_ ? static_cast<ncclResult_t>(error) : ncclRemoteError;
  return ncclSuccess;
}

}  // namespace vgpu
