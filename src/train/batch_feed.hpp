#pragma once

#include "data/batch_rows.hpp"
#include "parallel/executor.hpp"

namespace forge {

// Hands the microbatches of a host batch to the executor's slots.
class BatchFeed final : public BatchSource {
 public:
  explicit BatchFeed(const HostBatch& batch) : batch_(batch) {}
  void load(Stream& stream, int microbatch, const Batch& to) override;
  void load_shifted(Stream& stream, int microbatch, int depth, const Batch& to) override;

 private:
  template <class P, class Rows>
  void copy(Stream& stream, int microbatch, const View<P, 1>& to, const Rows& rows);

  const HostBatch& batch_;
};

}  // namespace forge
