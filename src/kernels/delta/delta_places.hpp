#pragma once

#include "device/team.hpp"
#include "kernels/delta/delta.hpp"

namespace forge {

// Where a row of the working arrays stands (kernels/delta/delta.hpp).
struct DeltaPlace {
  std::int64_t chunk, sequence, head, token;  // of the sequence; perhaps behind its end

  FORGE_INLINE DeltaPlace(const DeltaShape& s, std::int64_t row) {
    const std::int64_t group = quotient(row, s.chunk()), i = row - group * s.chunk();
    chunk = quotient(group, s.heads());
    const std::int64_t of_chunk = group - chunk * s.heads();
    sequence = quotient(of_chunk, s.value_heads);
    head = of_chunk - sequence * s.value_heads;
    token = chunk * s.chunk() + i;
  }
  FORGE_INLINE bool there(const DeltaShape& s) const { return token < s.tokens; }
  FORGE_INLINE std::int64_t batch_row(const DeltaShape& s) const { return sequence * s.tokens + token; }
};

// The working row of a token and value head.
FORGE_INLINE std::int64_t delta_row(const DeltaShape& s, std::int64_t batch_row, std::int64_t head) {
  const std::int64_t sequence = quotient(batch_row, s.tokens), token = batch_row - sequence * s.tokens,
                     chunk = quotient(token, s.chunk());
  return ((chunk * s.sequences + sequence) * s.value_heads + head) * s.chunk() + token - chunk * s.chunk();
}

FORGE_INLINE bool is_token(const DeltaRows& rows, std::int64_t batch_row) {
  return rows.places.empty() || rows.places[batch_row] >= 0;
}

// Of tokens of a sequence, by their number there.
struct DeltaDocuments {
  const std::int32_t* of;  // of the sequence's first token; null: one document

  FORGE_INLINE DeltaDocuments(const Documents& documents, const DeltaShape& s, std::int64_t sequence)
      : of(documents.empty() ? nullptr : documents.data + sequence * s.tokens) {}
  FORGE_INLINE bool same(std::int64_t a, std::int64_t b) const { return !of || of[a] == of[b]; }
};

}  // namespace forge
