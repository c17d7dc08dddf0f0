#pragma once

#include <array>
#include <span>
#include <string>

#include "data/batch_rows.hpp"
#include "data/sample_order.hpp"
#include "data/token_set.hpp"

namespace forge {

// How many samples of a held-out set a validation reads: as the set says, else `standard` (train.validation_sequences);
// 0 = all. BadInput where there are fewer.
std::int64_t validation_sequences(const TokenSet& set, const ValidationDeck& deck, std::int64_t standard);

// The buffers for reading the sets of a run, one set after the other: a filler and two batches, allocated once.
class ValidationBatches {
 public:
  // `bytes_of_id`: bytes of each id's text, must live longer than this object; none: batches don't count them.
  ValidationBatches(std::int64_t microbatch, std::int64_t sequence_tokens, std::int64_t vocabulary,
                    const RowShare& rows = {}, std::span<const std::int64_t> bytes_of_id = {});

 private:
  friend class ValidationSet;
  BatchFiller filler_;
  std::array<HostBatch, 2> batches_;
};

// The first samples of held-out files, the same at every validation, dealt to the data-parallel ranks like a training
// step. Every rank has the same number of microbatches; the last ones are filled up with padding without labels.
class ValidationSet {
 public:
  // `sequences` of them, not 0: validation_sequences(). `set` and `batches`, of its shape, must live longer than this.
  ValidationSet(const TokenSet& set, std::int64_t sequences, std::int64_t ranks, std::int64_t rank,
                ValidationBatches& batches, const std::string& name = "");

  const std::string& name() const { return name_; }
  std::int64_t sequences() const { return sequences_; }
  // Microbatches of this rank, and of every other.
  std::int64_t microbatches() const { return microbatches_; }
  // Microbatch m, read now; valid until the call after the next, of any set with these batches: a device may still be
  // copying the one before.
  const HostBatch& microbatch(std::int64_t m);

 private:
  const TokenSet& set_;
  ValidationBatches& batches_;
  std::string name_;
  std::int64_t sequences_;
  BatchShare share_;
  std::int64_t microbatches_;
};

}  // namespace forge
