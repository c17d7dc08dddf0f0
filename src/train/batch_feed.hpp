#pragma once

#include "data/batch.hpp"
#include "parallel/executor.hpp"

namespace forge {

// Hands the microbatches of a host batch to the executor's slots.
class BatchFeed final : public BatchSource {
 public:
  explicit BatchFeed(const HostBatch& batch) : batch_(batch) {}
  void load(Stream& stream, int microbatch, const BufferSet& slot) override;
  void load_shifted(Stream& stream, int microbatch, int depth, const BufferSet& slot) override;

 private:
  template <class Rows>
  void copy(Stream& stream, int microbatch, const BufferSet& slot, Buf id, const Rows& rows);

  const HostBatch& batch_;
};

}  // namespace forge
