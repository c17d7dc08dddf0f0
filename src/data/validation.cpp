#include "data/validation.hpp"

#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

std::int64_t validation_sequences(const TokenSet& set, std::int64_t sequences) {
  if (sequences < 0 || sequences > set.samples())
    throw BadInput("train.validation_sequences: is " + std::to_string(sequences) + ", but data.validation_files hold " +
                   std::to_string(set.samples()) + " samples");
  return sequences == 0 ? set.samples() : sequences;
}

ValidationSet::ValidationSet(const TokenSet& set, std::int64_t sequences, std::int64_t microbatch, std::int64_t ranks,
                             std::int64_t rank, const RowShare& rows)
    : set_(set),
      sequences_(validation_sequences(set, sequences)),
      share_{microbatch * ranks, microbatch, ranks, rank},
      filler_(set.sequence_tokens(), set.options().vocabulary) {
  microbatches_ = (sequences_ + share_.batches.of(1) - 1) / share_.batches.of(1);
  for (HostBatch& batch : batches_) batch.allocate(1, microbatch, set.sequence_tokens(), rows);
}

const HostBatch& ValidationSet::microbatch(std::int64_t m) {
  require(0 <= m && m < microbatches_, "validation: no such microbatch");
  HostBatch& batch = batches_[to_size(m % 2)];
  filler_.begin(batch);
  for (std::int64_t row = 0; row < batch.sequences; ++row) {
    const std::int64_t sample = share_.place(m + 1, row);
    if (sample < sequences_)
      filler_.fill_sequence(batch, row, set_, sample, sample);
    else
      filler_.fill_padding(batch, row);
  }
  filler_.finish(batch);
  return batch;
}

}  // namespace forge
