#include "data/batch.hpp"

#include <algorithm>

#include "data/token_set.hpp"

namespace forge {

namespace {

// order := rows sorted by keys[row] in 0 … starts.size()−2, equal keys in row order (a counting sort).
void sort_rows(std::span<const std::int32_t> keys, std::span<std::int32_t> starts, std::span<std::int32_t> order) {
  std::fill(starts.begin(), starts.end(), 0);
  for (const std::int32_t key : keys) ++starts[static_cast<std::size_t>(key) + 1];
  for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
  for (std::size_t row = 0; row < keys.size(); ++row)
    order[static_cast<std::size_t>(starts[static_cast<std::size_t>(keys[row])]++)] = static_cast<std::int32_t>(row);
}

}  // namespace

void HostBatch::allocate(std::int64_t microbatches, std::int64_t microbatch, std::int64_t tokens_of_sequence) {
  sequences = microbatches * microbatch;
  microbatch_sequences = microbatch;
  sequence_tokens = tokens_of_sequence;
  const auto rows = static_cast<std::size_t>(sequences * sequence_tokens);
  for (auto* vector : {&tokens, &labels, &positions, &documents, &token_order, &position_order})
    vector->assign(rows, 0);
  samples.assign(rows, -1);
  for (std::size_t row = 0; row < rows; ++row)
    positions[row] = static_cast<std::int32_t>(row % static_cast<std::size_t>(sequence_tokens));
  // Positions never change, nor does their order: position t of every sequence, then position t + 1.
  std::size_t next = 0;
  for (std::int64_t m = 0; m < microbatches; ++m)
    for (std::int64_t t = 0; t < sequence_tokens; ++t)
      for (std::int64_t b = 0; b < microbatch; ++b)
        position_order[next++] = static_cast<std::int32_t>(b * sequence_tokens + t);
}

BatchFiller::BatchFiller(const TokenSet& set)
    : set_(set),
      sample_(static_cast<std::size_t>(set.sequence_tokens() + 1)),
      starts_(static_cast<std::size_t>(set.options().vocabulary + 1)) {}

void BatchFiller::fill_sequence(HostBatch& batch, std::int64_t row, std::int64_t sample, std::int64_t place) {
  set_.read(sample, sample_);
  const std::int64_t end_token = set_.options().document_end_token;
  const auto length = static_cast<std::size_t>(batch.sequence_tokens);
  const std::size_t begin = static_cast<std::size_t>(row) * length;
  std::int32_t document = 0;
  for (std::size_t t = 0; t < length; ++t) {
    const bool ends = sample_[t] == end_token;
    batch.tokens[begin + t] = sample_[t];
    batch.labels[begin + t] = ends ? masked_label : sample_[t + 1];
    batch.documents[begin + t] = document;
    batch.samples[begin + t] = place;
    document += ends;
  }
}

void BatchFiller::fill_padding(HostBatch& batch, std::int64_t row) {
  const std::int64_t begin = row * batch.sequence_tokens;
  const std::int64_t end = begin + batch.sequence_tokens;
  std::fill(batch.tokens.begin() + begin, batch.tokens.begin() + end, 0);
  std::fill(batch.labels.begin() + begin, batch.labels.begin() + end, masked_label);
  std::fill(batch.documents.begin() + begin, batch.documents.begin() + end, 0);
  std::fill(batch.samples.begin() + begin, batch.samples.begin() + end, -1);
}

void BatchFiller::finish(HostBatch& batch) {
  batch.label_count = static_cast<std::int64_t>(batch.labels.size()) -
                      std::count(batch.labels.begin(), batch.labels.end(), masked_label);
  const auto rows = static_cast<std::size_t>(batch.microbatch_sequences * batch.sequence_tokens);
  for (std::int64_t m = 0; m < batch.microbatches(); ++m)
    sort_rows(batch.of_microbatch(batch.tokens, m), starts_,
              std::span(batch.token_order).subspan(static_cast<std::size_t>(m) * rows, rows));
}

}  // namespace forge
