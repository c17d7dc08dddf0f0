#pragma once

#include <cstdint>

#include "comm/communicator.hpp"
#include "device/stream.hpp"

namespace forge {

// Sums gradients over the data-parallel ranks, in a stream of its own behind the backward pass: a unit's reduction is
// posted as soon as its last weight gradient is in the compute stream.
class GradientSync {
 public:
  explicit GradientSync(Communicator& replicas) : replicas_(replicas), stream_(1, Stream::Kind::Worker) {}

  // Every rank posts the same buffers in the same order. The buffer belongs to the reduction until wait().
  void post(Stream& compute, void* data, std::int64_t elements, DType type);
  // Work given to `compute` from here on sees the reduced gradients.
  void wait(Stream& compute);

 private:
  Communicator& replicas_;
  Stream stream_;
};

}  // namespace forge
