#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "core/to_size.hpp"
#include "data/batch_rows.hpp"
#include "data/sample_stream.hpp"

namespace forge {

// Reads a rank's batches ahead of the training loop: a thread fills one batch while the other is in use. Two buffers,
// allocated at the start; no state beyond the step.
class Loader {
 public:
  // Steps first_step … last_step. The stream's sets must live longer than the loader.
  Loader(SampleStream stream, BatchShare share, std::int64_t first_step, std::int64_t last_step,
         const RowShare& rows = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // This rank's share of the next step; valid until the next call. An exception of the thread is thrown here, at the
  // step that it concerns, and again by every later call.
  const HostBatch& next();
  // Step of the batch that next() returned last.
  std::int64_t step() const { return taken_; }

 private:
  void fill_ahead();
  void fill(std::int64_t step);
  HostBatch& buffer(std::int64_t step) { return buffers_[to_size(step % 2)]; }

  SampleStream stream_;
  BatchShare share_;
  std::int64_t last_step_;
  BatchFiller filler_;
  std::array<HostBatch, 2> buffers_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t filled_;  // last step whose batch is complete
  std::int64_t taken_;   // last step handed out
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace forge
