#pragma once

#include "model/buffers.hpp"

namespace forge {

// A microbatch's rows on this rank, which data/batch.hpp makes.
struct Batch {
  View<std::int32_t, 1> tokens, labels, positions, documents;  // (R)
  View<std::int64_t, 1> samples;                               // (R)
  View<std::int32_t, 1> token_order;                           // (R)
  View<std::int32_t, 1> position_order;                        // (S)
  // (R cp) of all context-parallel ranks: by rank and then sequence; all_to_all: by sequence, then rank
  View<std::int32_t, 1> key_positions, key_documents;
  View<std::int64_t, 1> key_samples;  // all_to_all only

  void list(BufferLister& l);
  // What a depth of multi-token prediction has in the place of the model's own.
  void list_shifted(BufferLister& l);
};

}  // namespace forge
