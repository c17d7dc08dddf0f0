#pragma once

#include <nccl.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace forge {

// A thread that asks NCCL's communicators for errors that came up by themselves: where a link or a rank fails, the
// operations of all others wait, and no call says why. An error ends the job with NCCL's text (core/last_words.hpp);
// where nobody wants last words, it is left to those who wait.
class NcclMonitor {
 public:
  NcclMonitor();
  ~NcclMonitor();
  NcclMonitor(const NcclMonitor&) = delete;
  NcclMonitor& operator=(const NcclMonitor&) = delete;

  void watch(ncclComm_t comm);
  // Stops watching: from here on the communicator may be ended.
  void forget(ncclComm_t comm);

 private:
  void run();
  // An error of any of the communicators.
  ncclResult_t error() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ncclComm_t> comms_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace forge
