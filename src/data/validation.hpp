#pragma once

#include <array>

#include "data/batch_rows.hpp"
#include "data/sample_order.hpp"
#include "data/token_set.hpp"

namespace forge {

// How many samples of the set `sequences` of a deck are: 0 = all; BadInput where there are fewer.
std::int64_t validation_sequences(const TokenSet& set, std::int64_t sequences);

// The first samples of the validation files, the same at every validation, dealt to the data-parallel ranks like a
// training step. Every rank has the same number of microbatches; what is missing in the last ones is padding without
// labels.
class ValidationSet {
 public:
  // `sequences` of them: validation_sequences(). `set` outlives this object.
  ValidationSet(const TokenSet& set, std::int64_t sequences, std::int64_t microbatch, std::int64_t ranks,
                std::int64_t rank, const RowShare& rows = {});

  std::int64_t sequences() const { return sequences_; }
  // Microbatches of this rank, and of every other.
  std::int64_t microbatches() const { return microbatches_; }
  // Microbatch m, read now; valid until the call after the next: a device may still be copying the one before.
  const HostBatch& microbatch(std::int64_t m);

 private:
  const TokenSet& set_;
  std::int64_t sequences_;
  BatchShare share_;
  std::int64_t microbatches_;
  BatchFiller filler_;
  std::array<HostBatch, 2> batches_;
};

}  // namespace forge
