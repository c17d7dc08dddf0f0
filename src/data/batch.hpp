#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace forge {

// A label that takes no part in the loss.
inline constexpr std::int32_t masked_label = -1;

// Sequences of T tokens on the host, as rows (B·T): all that the model sees of the data. A rank's share of a step is
// one batch of A microbatches of b sequences: microbatch m is sequences [m·b, (m + 1)·b).
struct HostBatch {
  std::int64_t sequences = 0;             // B = A·b
  std::int64_t microbatch_sequences = 0;  // b
  std::int64_t sequence_tokens = 0;       // T
  std::vector<std::int32_t> tokens;       // (B·T) inputs
  std::vector<std::int32_t> labels;       // (B·T) the following tokens; masked_label: no loss
  std::vector<std::int32_t> positions;    // (B·T) 0 … T−1, not restarted by a document
  std::vector<std::int32_t> documents;    // (B·T) from 0 in every sequence
  std::vector<std::int64_t> samples;      // (B·T) place of the row's sequence in the run's order; −1: padding
  // Rows of each microbatch (0 … b·T−1) sorted by token and by position, equal ones in row order: what the gradients of
  // the embedding tables are summed in.
  std::vector<std::int32_t> token_order;     // (A, b·T)
  std::vector<std::int32_t> position_order;  // (A, b·T)
  std::int64_t label_count = 0;              // labels that aren't masked

  // Sizes every vector; nothing grows later.
  void allocate(std::int64_t microbatches, std::int64_t microbatch, std::int64_t tokens_of_sequence);
  std::int64_t microbatches() const { return microbatch_sequences == 0 ? 0 : sequences / microbatch_sequences; }
  // The part of one of the vectors above that belongs to microbatch m: (b·T).
  template <class T>
  std::span<const T> of_microbatch(const std::vector<T>& rows, std::int64_t m) const {
    const auto n = static_cast<std::size_t>(microbatch_sequences * sequence_tokens);
    return std::span<const T>(rows).subspan(static_cast<std::size_t>(m) * n, n);
  }
};

class TokenSet;

// Fills batches from a token set; its scratch space is allocated once.
class BatchFiller {
 public:
  explicit BatchFiller(const TokenSet& set);
  // Sequence `row` of the batch := sample `sample` of the set, which is number `place` in the run's order.
  // Document ids grow behind each document end, whose own label is masked.
  void fill_sequence(HostBatch& batch, std::int64_t row, std::int64_t sample, std::int64_t place);
  // Sequence `row` := T times token 0 without labels.
  void fill_padding(HostBatch& batch, std::int64_t row);
  // Counts labels and sorts the rows, after all sequences are filled.
  void finish(HostBatch& batch);

 private:
  const TokenSet& set_;
  std::vector<std::int32_t> sample_;  // (T + 1)
  std::vector<std::int32_t> starts_;  // (V + 1)
};

}  // namespace forge
