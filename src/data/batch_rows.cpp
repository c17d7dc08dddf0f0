#include "data/batch_rows.hpp"

#include <algorithm>
#include <numeric>

#include "core/random.hpp"
#include "data/token_set.hpp"

namespace forge {

namespace {

// order := rows sorted by keys[row] in −1 … starts.size()−3, equal keys in row order (a counting sort).
void sort_rows(std::span<const std::int32_t> keys, std::span<std::int32_t> starts, std::span<std::int32_t> order) {
  std::fill(starts.begin(), starts.end(), 0);
  for (const std::int32_t key : keys) ++starts[to_size(key + 2)];
  for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
  for (std::size_t row = 0; row < keys.size(); ++row)
    order[to_size(starts[to_size(keys[row] + 1)]++)] = static_cast<std::int32_t>(row);
}

// Where a row of a cp rank stands among the keys of a microbatch of b sequences with Tc tokens on each rank.
std::size_t key_row(const HostBatch& batch, int rank, std::int64_t sequence) {
  const std::int64_t b = batch.microbatch_sequences, m = sequence / b, in_batch = sequence % b, cp = batch.share.cp;
  const std::int64_t inner = batch.share.cp_inner, piece = (rank / inner * b + in_batch) * inner + rank % inner;
  return to_size((m * b * cp + piece) * batch.local_tokens());
}

// A token as a tensor-parallel rank sees it.
std::int32_t own_token(std::int32_t token, const Range& vocabulary) {
  const bool here = token >= vocabulary.begin && token < vocabulary.end;
  return here ? static_cast<std::int32_t>(token - vocabulary.begin) : foreign_token;
}

}  // namespace

void HostBatch::allocate(std::int64_t microbatches, std::int64_t microbatch, std::int64_t tokens_of_sequence,
                         const RowShare& rows_of_rank) {
  sequences = microbatches * microbatch;
  microbatch_sequences = microbatch;
  sequence_tokens = tokens_of_sequence;
  share = rows_of_rank;
  const auto rows = to_size(sequences * local_tokens());
  for (auto* vector : {&tokens, &labels, &positions, &documents, &token_order}) vector->assign(rows, 0);
  samples.assign(rows, -1);
  if (share.document_positions) document_positions.assign(rows, 0);
  if (share.sources) sources.assign(rows, 0);
  if (share.pairs) texts.assign(rows, -1);
  if (share.pairs) references.assign(to_size(2 * sequences), Sample::no_reference);
  shifted.resize(to_size(share.mtp_depth));
  for (ShiftedRows& depth : shifted)
    for (auto* vector : {&depth.tokens, &depth.labels, &depth.token_order}) vector->assign(rows, 0);
  const auto own = zigzag_positions(sequence_tokens, share.cp, share.cp_rank);
  for (std::size_t row = 0; row < rows; ++row) positions[row] = own[row % own.size()];
  if (share.cp > 1) {
    key_positions.assign(to_size(sequences * sequence_tokens), 0);
    key_documents = key_positions;
    if (share.cp_inner > 1) key_samples.assign(key_positions.size(), -1);
    if (share.whole_documents) whole_documents = key_positions;
    for (int rank = 0; rank < share.cp; ++rank) {
      const auto theirs = zigzag_positions(sequence_tokens, share.cp, rank);
      for (std::int64_t s = 0; s < sequences; ++s)
        std::copy(theirs.begin(), theirs.end(),
                  key_positions.begin() + static_cast<std::ptrdiff_t>(key_row(*this, rank, s)));
    }
  }
  // Positions never change, nor does their order, but for those that start anew with each document.
  const auto in_microbatch = to_size(microbatch * local_tokens());
  const auto in_stream = in_microbatch / to_size(share.tp);
  const auto begin = in_stream * to_size(share.tp_rank);
  position_order.assign(to_size(microbatches) * in_stream, 0);
  std::vector<std::int32_t> starts(to_size(sequence_tokens + 2));
  for (std::int64_t m = 0; m < microbatches; ++m)
    sort_rows(of_microbatch(positions, m).subspan(begin, in_stream), starts,
              std::span(position_order).subspan(to_size(m) * in_stream, in_stream));
}

LabelCounts HostBatch::label_counts() const {
  LabelCounts counts{label_count, token_count, {}, {}};
  counts.sources = source_labels;
  for (const ShiftedRows& depth : shifted) counts.mtp.push_back(depth.label_count);
  return counts;
}

BatchFiller::BatchFiller(std::int64_t sequence_tokens, std::int64_t vocabulary, std::size_t sources)
    : sample_(sequence_tokens),
      vocabulary_(vocabulary),
      sources_(sources),
      starts_(to_size(std::max(vocabulary, sequence_tokens) + 2)) {}

// This rank's rows of the sequence in sample_.
void BatchFiller::write_rows(HostBatch& batch, std::int64_t row, std::int64_t place, std::size_t source) {
  const auto length = to_size(batch.local_tokens());
  const std::size_t begin = to_size(row) * length;
  const auto sample_of = [&](std::int32_t position) { return position < sample_.filled ? place : -1; };
  batch.token_count += sample_.filled;
  for (std::size_t i = begin; i < begin + length; ++i) {
    const auto t = to_size(batch.positions[i]);
    batch.tokens[i] = own_token(sample_.tokens[t], batch.share.vocabulary);
    batch.labels[i] = sample_.labels[t];
    batch.documents[i] = sample_.documents[t];
    batch.samples[i] = sample_of(batch.positions[i]);
    if (batch.share.document_positions) batch.document_positions[i] = sample_.positions[t];
    if (batch.share.sources) batch.sources[i] = static_cast<std::int32_t>(source);
  }
  if (batch.share.pairs) write_pair(batch, row);
  for (int rank = 0; rank < batch.share.cp && batch.share.cp > 1; ++rank)
    for (std::size_t i = key_row(batch, rank, row), end = i + length; i < end; ++i) {
      batch.key_documents[i] = sample_.documents[to_size(batch.key_positions[i])];
      if (!batch.key_samples.empty()) batch.key_samples[i] = sample_of(batch.key_positions[i]);
    }
  if (!batch.whole_documents.empty())
    std::copy(sample_.documents.begin(), sample_.documents.end(),
              batch.whole_documents.begin() + static_cast<std::ptrdiff_t>(row * batch.sequence_tokens));
  for (std::int64_t depth = 1; depth <= batch.share.mtp_depth; ++depth) write_shifted(batch, row, depth);
}

// The sequence in sample_ as a pair of texts.
void BatchFiller::write_pair(HostBatch& batch, std::int64_t row) {
  const auto length = to_size(batch.local_tokens());
  const auto first = static_cast<std::int32_t>(2 * (row % batch.microbatch_sequences));
  for (std::size_t i = to_size(row) * length, end = i + length; i < end; ++i) {
    const std::int32_t document = batch.documents[i];
    batch.texts[i] = batch.samples[i] >= 0 && document < 2 ? first + document : -1;
  }
  std::copy(sample_.references.begin(), sample_.references.end(),
            batch.references.begin() + static_cast<std::ptrdiff_t>(2 * row));
}

// Rows of depth `depth` of multi-token prediction, from 1.
void BatchFiller::write_shifted(HostBatch& batch, std::int64_t row, std::int64_t depth) {
  ShiftedRows& shifted = batch.shifted[to_size(depth - 1)];
  const std::vector<std::int32_t>&labels = sample_.labels, &documents = sample_.documents;
  const std::size_t length = labels.size(), d = to_size(depth);
  const auto next = [&](std::size_t t) {  // of the same document, d behind t
    return t + d < length && documents[t + d] == documents[t];
  };
  for (std::size_t t = 0; t + d < length; ++t) shifted.label_count += next(t) && labels[t + d] != masked_label;
  const auto rows = to_size(batch.local_tokens());
  const std::size_t begin = to_size(row) * rows;
  for (std::size_t i = begin; i < begin + rows; ++i) {
    const auto t = to_size(batch.positions[i]);
    // The sample's last token is no input, but the label of the last position.
    const bool last = t + d == length && documents[t] == documents.back() && labels.back() != masked_label;
    shifted.tokens[i] = next(t) || last ? own_token(sample_.tokens[t + d], batch.share.vocabulary) : foreign_token;
    shifted.labels[i] = next(t) ? labels[t + d] : masked_label;
  }
}

void BatchFiller::fill_sequence(HostBatch& batch, std::int64_t row, const TokenSet& set, std::int64_t sample,
                                std::int64_t place, std::size_t source, const SamplePieces* pieces) {
  set.read(sample, sample_);
  if (pieces) pieces->cut(sample_);
  write_sample(batch, row, place, source);
}

void BatchFiller::fill_sample(HostBatch& batch, std::int64_t row, const Sample& sample, std::int64_t place) {
  sample_ = sample;
  write_sample(batch, row, place, 0);
}

void BatchFiller::fill_drawn(HostBatch& batch, std::int64_t row, std::int64_t place, std::uint64_t key,
                             const Range& tokens) {
  require(tokens.begin >= 0 && !tokens.empty() && tokens.end <= vocabulary_, "drawn tokens are of the vocabulary");
  const std::uint64_t of_place = mix(key, static_cast<std::uint64_t>(place));
  for (std::size_t t = 0; t < sample_.tokens.size(); ++t)
    sample_.tokens[t] = static_cast<std::int32_t>(to_size(tokens.begin) + mix(of_place, t) % to_size(tokens.size()));
  std::copy(sample_.tokens.begin() + 1, sample_.tokens.end(), sample_.labels.begin());
  std::fill(sample_.documents.begin(), sample_.documents.end(), 0);
  std::iota(sample_.positions.begin(), sample_.positions.end(), 0);
  sample_.filled = static_cast<std::int64_t>(sample_.labels.size());
  write_sample(batch, row, place, 0);
}

// The sequence in sample_, whose labels count.
void BatchFiller::write_sample(HostBatch& batch, std::int64_t row, std::int64_t place, std::size_t source) {
  const auto masked = std::count(sample_.labels.begin(), sample_.labels.end(), masked_label);
  const std::int64_t labels = static_cast<std::int64_t>(sample_.labels.size()) - masked;
  batch.label_count += batch.share.pairs ? 1 : labels;
  if (sources_ > 0) batch.source_labels[source] += labels;
  if (!bytes_of_id_.empty() && !batch.share.pairs)
    for (const std::int32_t label : sample_.labels)
      if (label != masked_label) batch.label_bytes += bytes_of_id_[to_size(label)];
  write_rows(batch, row, place, source);
}

void BatchFiller::fill_padding(HostBatch& batch, std::int64_t row) {
  std::fill(sample_.tokens.begin(), sample_.tokens.end(), 0);
  std::fill(sample_.labels.begin(), sample_.labels.end(), masked_label);
  std::fill(sample_.documents.begin(), sample_.documents.end(), 0);
  std::iota(sample_.positions.begin(), sample_.positions.end(), 0);
  sample_.references = {Sample::no_reference, Sample::no_reference};
  sample_.filled = 0;
  write_rows(batch, row, -1, 0);
}

void BatchFiller::begin(HostBatch& batch) {
  batch.label_count = batch.token_count = batch.label_bytes = 0;
  batch.source_labels = {};
  for (std::size_t i = 0; i < sources_; ++i) batch.source_labels.push_back(0);
  for (ShiftedRows& depth : batch.shifted) depth.label_count = 0;
}

void BatchFiller::sort_tokens(const HostBatch& batch, const PinnedVector<std::int32_t>& tokens,
                              PinnedVector<std::int32_t>& order) {
  const std::size_t rows = to_size(batch.microbatch_sequences * batch.local_tokens());
  for (std::int64_t m = 0; m < batch.microbatches(); ++m)
    sort_rows(batch.of_microbatch(tokens, m), starts_, std::span(order).subspan(to_size(m) * rows, rows));
}

void BatchFiller::finish(HostBatch& batch) {
  sort_tokens(batch, batch.tokens, batch.token_order);
  for (ShiftedRows& depth : batch.shifted) sort_tokens(batch, depth.tokens, depth.token_order);
  if (!batch.share.document_positions) return;
  const std::size_t rows = batch.position_order.size() / to_size(batch.microbatches());
  for (std::int64_t m = 0; m < batch.microbatches(); ++m)
    sort_rows(batch.of_microbatch(batch.document_positions, m).subspan(rows * to_size(batch.share.tp_rank), rows),
              std::span(starts_).first(to_size(batch.sequence_tokens + 2)),
              std::span(batch.position_order).subspan(to_size(m) * rows, rows));
}

}  // namespace forge
