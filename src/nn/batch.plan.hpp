#pragma once

#include "model/buffers.hpp"

namespace forge {

// A microbatch's rows on this rank, which data/batch_rows.hpp makes.
struct Batch {
  View<std::int32_t, 1> tokens, labels, positions, documents;  // (R)
  View<std::int64_t, 1> samples;                               // (R)
  View<std::int32_t, 1> token_order;                           // (R)
  View<std::int32_t, 1> position_order;                        // (S)
  // Two that exist where the data has them: the position that tables and rotations take, where it isn't `positions`,
  // the place in the sample; and the number of the source, of a mixture.
  View<std::int32_t, 1> document_positions, sources;  // (R)
  // Of pairs: 2 times the sequence of the microbatch, + 1 in its second text; −1 behind both; and the reference's
  // log-probabilities of the texts, NaN in padding.
  View<std::int32_t, 1> texts;  // (R)
  View<double, 1> references;   // (2 b)
  // (R cp) of all context-parallel ranks: by groups of cp_inner ranks, in each by sequence, then rank
  View<std::int32_t, 1> key_positions, key_documents;
  View<std::int64_t, 1> key_samples;      // where cp_inner > 1
  View<std::int32_t, 1> whole_documents;  // (R cp) by sequence and position, for gated DeltaNet of several cp ranks

  void list(BufferLister& l) {
    l.add(tokens, "tokens", l.R, 1, l.W);
    l.add(labels, "labels", l.R, 1, l.F);
    const bool drops = l.spec.options.adapter.dropout > 0;
    l.add(positions, "positions", l.R, 1, drops ? l.W : l.B);
    l.add(documents, "documents", l.R, 1, l.B);
    l.add(samples, "samples", l.R, 1, l.c.rounding.on || drops ? l.W : l.B);
    l.add(token_order, "rows by token", l.R, 1, l.W);
    if (!l.spec.rope()) l.add(position_order, "rows by position", l.S, 1, l.W);
    if (l.c.document_positions) l.add(document_positions, "positions in documents", l.R, 1, l.B);
    if (l.c.sources > 0) l.add(sources, "sources", l.R, 1, l.F);
    if (l.c.pairs) l.add(texts, "texts of pairs", l.R, 1, l.F);
    if (l.c.pairs) l.add(references, "log-probabilities of the reference", l.c.texts(), 1, l.F);
    if (l.c.microbatch.cp == 1) return;
    const std::int64_t all = l.c.microbatch.rows_of_all();
    l.add(key_positions, "positions of keys", all, 1, l.B);
    l.add(key_documents, "documents of keys", all, 1, l.B);
    if (l.c.cp_inner > 1) l.add(key_samples, "samples of keys", all, 1, l.B);
    if (l.spec.options.full_attention_interval > 0) l.add(whole_documents, "documents of sequences", all, 1, l.B);
  }
  const View<std::int32_t, 1>& table_positions() const {
    return document_positions.empty() ? positions : document_positions;
  }
  // What a depth of multi-token prediction has in the place of the model's own.
  void list_shifted(BufferLister& l) {
    l.add(tokens, "shifted tokens", l.R, 1, l.B);
    l.add(labels, "shifted labels", l.R, 1, l.F);
    l.add(token_order, "rows by shifted token", l.R, 1, l.B);
  }
};

}  // namespace forge
