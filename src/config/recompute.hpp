#pragma once

#include <array>
#include <vector>

#include "config/deck.hpp"
#include "core/to_size.hpp"

namespace forge {

// Policies of recomputation, each of which drops more than the one before: the deck's words.
inline constexpr std::array recompute_words{"none", "selective", "latent", "full"};
constexpr const char* name_of(Recompute policy) {
  return recompute_words[to_size(policy)];
}

// Those that a model may have: latents are of multi-head latent attention.
inline std::vector<Recompute> recompute_policies(const ModelDeck& model) {
  if (model.attention == AttentionKind::mla)
    return {Recompute::none, Recompute::selective, Recompute::latent, Recompute::full};
  return {Recompute::none, Recompute::selective, Recompute::full};
}

}  // namespace forge
