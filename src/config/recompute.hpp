#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
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

// "selective", "selective, 2 of a stage full".
inline std::string recompute_text(const TrainDeck& train) {
  const std::string others = name_of(train.recompute);
  return train.recompute_full_layers == 0
             ? others
             : others + ", " + std::to_string(train.recompute_full_layers) + " of a stage full";
}
// Of those the one that drops most, but for full.
inline Recompute most_below_full(const ModelDeck& model) {
  const std::vector<Recompute> policies = recompute_policies(model);
  return policies[policies.size() - 2];
}

// Layers of the largest of stages that share them out evenly.
inline std::int64_t layers_of_stage(const Deck& deck) {
  const std::int64_t stages = deck.mesh.pp * deck.schedule.virtual_stages;
  return (deck.model.layers + stages - 1) / stages;
}

// Another policy for all blocks that don't recompute all anyway; under full no others are left.
inline void set_recompute(TrainDeck& train, Recompute policy) {
  train.recompute = policy;
  if (policy == Recompute::full) train.recompute_full_layers = 0;
}

// The fraction of a stage's blocks that backward recomputes whole.
inline double fraction_recomputed(const TrainDeck& train, std::int64_t blocks) {
  if (train.recompute == Recompute::full) return 1;
  if (train.recompute_full_layers == 0 || blocks == 0) return 0;
  return static_cast<double>(std::min(train.recompute_full_layers, blocks)) / static_cast<double>(blocks);
}

}  // namespace forge
