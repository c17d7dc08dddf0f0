#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace forge {

// The sizes of a gated DeltaNet layer, for its kernels (kernels/delta/delta.hpp) and its plan.
// Rows of the batch are (sequence, token); rows of the working arrays (chunk, sequence, value head, token of the
// chunk), so that a chunk of all heads stands together. Rows behind a sequence hold zeros.
struct DeltaShape {
  std::int64_t sequences, tokens, key_heads, value_heads, key_dim, value_dim;

  // The tokens of a chunk.
  FORGE_INLINE std::int64_t chunk() const { return tokens < 64 ? tokens : 64; }
  FORGE_INLINE std::int64_t chunks() const { return (tokens + chunk() - 1) / chunk(); }
  FORGE_INLINE std::int64_t heads() const { return sequences * value_heads; }  // of all sequences
  FORGE_INLINE std::int64_t groups() const { return chunks() * heads(); }      // chunks of heads
  FORGE_INLINE std::int64_t rows() const { return groups() * chunk(); }        // of the working arrays
  FORGE_INLINE std::int64_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};

}  // namespace forge
