#include "data/validation.hpp"

#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

std::int64_t validation_sequences(const TokenSet& set, const ValidationDeck& deck, std::int64_t standard) {
  const bool own = deck.sequences >= 0, named = !deck.name.empty();
  const std::int64_t sequences = own ? deck.sequences : standard;
  if (sequences < 0 || sequences > set.samples())
    throw BadInput((own ? "data.validation " + deck.name + ": sequences" : "train.validation_sequences:") +
                   (own ? " = " : " is ") + std::to_string(sequences) + ", but " +
                   (own     ? "its files hold "
                    : named ? "the files of data.validation " + deck.name + " hold "
                            : "data.validation_files hold ") +
                   counted(set.samples(), "sample") +
                   (named && !own ? "; legal: at most so many, 0 for all, or `sequences` of the set" : ""));
  return sequences == 0 ? set.samples() : sequences;
}

ValidationBatches::ValidationBatches(std::int64_t microbatch, std::int64_t sequence_tokens, std::int64_t vocabulary,
                                     const RowShare& rows, std::span<const std::int64_t> bytes_of_id)
    : filler_(sequence_tokens, vocabulary) {
  filler_.count_bytes(bytes_of_id);
  for (HostBatch& batch : batches_) batch.allocate(1, microbatch, sequence_tokens, rows);
}

ValidationSet::ValidationSet(const TokenSet& set, std::int64_t sequences, std::int64_t ranks, std::int64_t rank,
                             ValidationBatches& batches, const std::string& name)
    : set_(set), batches_(batches), name_(name), sequences_(sequences) {
  const std::int64_t microbatch = batches.batches_.front().microbatch_sequences;
  share_ = {microbatch * ranks, microbatch, ranks, rank};
  microbatches_ = (sequences_ + share_.batches.of(1) - 1) / share_.batches.of(1);
}

const HostBatch& ValidationSet::microbatch(std::int64_t m) {
  require(0 <= m && m < microbatches_, "validation: no such microbatch");
  HostBatch& batch = batches_.batches_[to_size(m % 2)];
  BatchFiller& filler = batches_.filler_;
  filler.begin(batch);
  for (std::int64_t row = 0; row < batch.sequences; ++row) {
    const std::int64_t sample = share_.place(m + 1, row);
    if (sample < sequences_)
      filler.fill_sequence(batch, row, set_, sample, sample);
    else
      filler.fill_padding(batch, row);
  }
  filler.finish(batch);
  return batch;
}

}  // namespace forge
