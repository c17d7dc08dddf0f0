#pragma once

#include <cstdint>

#include "config/deck.hpp"

namespace forge {

// A model whose dimensions are all known: the deck's model section, resolved (no zero left that means "derive it").
// Letters as in docs/notation.md.
struct ModelSpec {
  ModelDeck options;

  std::int64_t L() const { return options.layers; }
  std::int64_t C() const { return options.width; }
  std::int64_t H() const { return options.heads; }
  std::int64_t K() const { return options.kv_heads; }
  std::int64_t D() const { return options.head_dim; }
  std::int64_t F() const { return options.ffn; }
  std::int64_t V() const { return options.vocabulary; }

  std::int64_t q_columns() const { return H() * D(); }
  std::int64_t kv_columns() const { return K() * D(); }
  std::int64_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
  bool gated() const { return options.activation == Activation::swiglu; }
  // Columns of the first feed-forward product: gate and up side by side, or F.
  std::int64_t up_columns() const { return gated() ? 2 * F() : F(); }
  bool layernorm() const { return options.norm == NormKind::layernorm; }
  bool rope() const { return options.positions == PositionKind::rope; }
  // Attention window of a layer; 0 = none.
  std::int64_t window(std::int64_t layer) const {
    return layer >= options.sliding_window_layer ? options.sliding_window : 0;
  }
};

// Fills in kv_heads and head_dim; throws BadInput when a dimension is missing or impossible.
ModelSpec resolve_model(const ModelDeck& deck);

}  // namespace forge
