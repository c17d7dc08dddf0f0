#include "comm/nccl_monitor.hpp"

#include <chrono>
#include <string>

#include "core/error.hpp"
#include "core/last_words.hpp"

namespace forge {

NcclMonitor::NcclMonitor() : thread_([this] { run(); }) {}

NcclMonitor::~NcclMonitor() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclMonitor::watch(ncclComm_t comm) {
  const std::lock_guard lock(mutex_);
  comms_.push_back(comm);
}

void NcclMonitor::forget(ncclComm_t comm) {
  const std::lock_guard lock(mutex_);
  std::erase(comms_, comm);
}

ncclResult_t NcclMonitor::error() const {
  for (ncclComm_t comm : comms_) {
    ncclResult_t error = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &error);
    if (asked != ncclSuccess) error = asked;
    if (error != ncclSuccess && error != ncclInProgress) return error;
  }
  return ncclSuccess;
}

void NcclMonitor::run() {
  constexpr auto pause = std::chrono::milliseconds(100);
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (const ncclResult_t failed = error(); failed != ncclSuccess) {
      lock.unlock();
      const char* last = ncclGetLastError(nullptr);
      if (LastWords::wanted())
        throw LibraryFailed(std::string("NCCL failed behind its operations: ") + ncclGetErrorString(failed) +
                            (last && *last ? std::string(": ") + last : ""));
      return;
    }
    changed_.wait_for(lock, pause, [this] { return ends_; });
  }
}

}  // namespace forge
