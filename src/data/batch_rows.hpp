#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/deck.hpp"
#include "core/short_list.hpp"
#include "core/to_size.hpp"
#include "data/sample.hpp"
#include "device/pinned.hpp"
#include "layout/row_share.hpp"

namespace forge {

// A token whose row of the table another tensor-parallel rank has.
inline constexpr std::int32_t foreign_token = -1;

// Numbers of a step or a batch: all tokens of documents; and labels that aren't masked, or pairs: of the model, and of
// each depth of multi-token prediction.
struct LabelCounts {
  std::int64_t main = 0;
  std::int64_t tokens = 0;
  ShortList<std::int64_t, most_mtp_depths> mtp;
  ShortList<std::int64_t, most_sources> sources;  // of a mixture: the model's labels of each source
};

// The view of a batch's rows of depth d (from 1) of multi-token prediction: at position t the token t + d and as label
// token t + 1 + d of the sample (Liu et al. 2024, "DeepSeek-V3", arXiv 2412.19437, section 2.2). A row has no token
// where t + d is behind the sample or in another document, and no label where t + 1 + d is.
struct ShiftedRows {
  PinnedVector<std::int32_t> tokens;       // (B·Tc) as HostBatch::tokens; foreign_token also where there is none
  PinnedVector<std::int32_t> labels;       // (B·Tc)
  PinnedVector<std::int32_t> token_order;  // (A, b·Tc)
  std::int64_t label_count = 0;
};

// A rank's share of a step on the host, as rows: all of the data that the model sees. A row is a token of a document,
// its label masked or not, or filler: rows behind the documents of a packed sample, and all rows of a sequence of
// padding. Filler has no label, is in a document of its own, and changes nothing of the others' losses,
// routing, scales or gradients. It is A microbatches of b sequences, of each of which the rank computes Tc = T / cp
// tokens; microbatch m is rows [m b Tc, (m + 1) b Tc).
struct HostBatch {
  std::int64_t sequences = 0;             // B = A·b
  std::int64_t microbatch_sequences = 0;  // b
  std::int64_t sequence_tokens = 0;       // T
  RowShare share;
  PinnedVector<std::int32_t> tokens;     // (B·Tc) inputs, counted from share.vocabulary.begin; foreign_token
  PinnedVector<std::int32_t> labels;     // (B·Tc) the following tokens; masked_label: no loss
  PinnedVector<std::int32_t> positions;  // (B·Tc) 0 … T−1, not restarted by a document
  // Positions for tables and rotations where share.document_positions says so: from 0 in every document.
  PinnedVector<std::int32_t> document_positions;  // (B·Tc)
  PinnedVector<std::int32_t> sources;             // (B·Tc) number of the row's source, where share.sources says so
  PinnedVector<std::int32_t> documents;           // (B·Tc) from 0 in every sequence
  PinnedVector<std::int64_t> samples;  // (B·Tc) place of the row's sequence in the run's order; −1: filler
  // For pairs of texts, where share.pairs says so: 2 times the sequence's number in its microbatch, + 1 in the second
  // text; −1 behind both. And the reference's log-probability of each text; NaN in padding.
  PinnedVector<std::int32_t> texts;  // (B·Tc)
  PinnedVector<double> references;   // (2 B)
  // The rows of all cp ranks, where cp > 1: of each microbatch (cp, b, Tc), with all_to_all (b, cp, Tc).
  PinnedVector<std::int32_t> key_positions, key_documents;  // (B·T)
  PinnedVector<std::int64_t> key_samples;                   // (B·T) all_to_all only
  PinnedVector<std::int32_t> whole_documents;  // (B·T) by sequence and position, where share.whole_documents says so
  // Rows of each microbatch (0 … b·Tc−1) sorted by token, and this tp rank's rows of the stream (0 … b·Tc/tp−1) by
  // position, equal ones in row order: the orders of summation of the embedding tables' gradients.
  PinnedVector<std::int32_t> token_order;     // (A, b·Tc)
  PinnedVector<std::int32_t> position_order;  // (A, b·Tc/tp)
  // Labels of the sequences, all cp ranks', that aren't masked; where samples are pairs, the pairs. The mean
  // over them is the loss.
  std::int64_t label_count = 0;
  std::int64_t token_count = 0;                         // tokens of the sequences' documents, all cp ranks'
  std::int64_t label_bytes = 0;                         // of the labels' text (BatchFiller::count_bytes); else 0
  std::vector<ShiftedRows> shifted;                     // by depth of multi-token prediction, from 1
  ShortList<std::int64_t, most_sources> source_labels;  // of label_count, by source; empty: not apart

  // Sizes every vector; nothing grows later, unless more microbatches are asked for than ever before.
  void allocate(std::int64_t microbatches, std::int64_t microbatch, std::int64_t tokens_of_sequence,
                const RowShare& rows = {});
  std::int64_t microbatches() const { return microbatch_sequences == 0 ? 0 : sequences / microbatch_sequences; }
  std::int64_t local_tokens() const { return sequence_tokens / share.cp; }  // Tc
  LabelCounts label_counts() const;
  // The part of one of the vectors above that belongs to microbatch m.
  template <class T>
  std::span<const T> of_microbatch(const PinnedVector<T>& rows, std::int64_t m) const {
    const std::size_t n = rows.size() / to_size(microbatches());
    return std::span<const T>(rows).subspan(to_size(m) * n, n);
  }
};

class TokenSet;

// Fills batches from the token sets of a run's sources, 0, 1 and so on; its scratch space is allocated once.
class BatchFiller {
 public:
  // `sources`: how many of them are counted apart; 0: none is.
  BatchFiller(std::int64_t sequence_tokens, std::int64_t vocabulary, std::size_t sources = 0);
  // From here on batches say how long the text of their labels is: `of_id` has the bytes of each id, and stays.
  void count_bytes(std::span<const std::int64_t> of_id) { bytes_of_id_ = of_id; }
  // Sequence `row` of the batch := sample `sample` of the set, which is number `place` in the run's order. `pieces`:
  // how it is cut; null: it isn't.
  void fill_sequence(HostBatch& batch, std::int64_t row, const TokenSet& set, std::int64_t sample, std::int64_t place,
                     std::size_t source = 0, const SamplePieces* pieces = nullptr);
  // Sequence `row` := these T tokens; its place in the run's order.
  void fill_sample(HostBatch& batch, std::int64_t row, const Sample& sample, std::int64_t place);
  // Sequence `row` := T + 1 tokens of one document, drawn from `tokens` by the key; its place in the run's order.
  void fill_drawn(HostBatch& batch, std::int64_t row, std::int64_t place, std::uint64_t key, const Range& tokens);
  // Sequence `row` := T times token 0 without labels.
  void fill_padding(HostBatch& batch, std::int64_t row);
  // Sorts the rows, after all sequences are filled. Labels count from begin() to here.
  void begin(HostBatch& batch);
  void finish(HostBatch& batch);

 private:
  void write_rows(HostBatch& batch, std::int64_t row, std::int64_t place, std::size_t source);
  void write_pair(HostBatch& batch, std::int64_t row);
  void write_shifted(HostBatch& batch, std::int64_t row, std::int64_t depth);
  void sort_tokens(const HostBatch& batch, const PinnedVector<std::int32_t>& tokens, PinnedVector<std::int32_t>& order);

  void write_sample(HostBatch& batch, std::int64_t row, std::int64_t place, std::size_t source);

  Sample sample_;
  std::int64_t vocabulary_;
  std::size_t sources_;
  std::span<const std::int64_t> bytes_of_id_;  // (V), or none
  std::vector<std::int32_t> starts_;           // (V + 2), at least (T + 2)
};

}  // namespace forge
