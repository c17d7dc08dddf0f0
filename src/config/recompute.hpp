#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"

namespace forge {

// As a deck has it: "selective", "[norms, expert_activations]".
std::string name_of(Recompute policy);

// Those with words that a model may have, each of which drops more than the one before: latents are of multi-head
// latent attention.
std::vector<Recompute> recompute_policies(const ModelDeck& model);
// Of those the one that drops most, but for full.
inline Recompute most_below_full(const ModelDeck& model) {
  const std::vector<Recompute> policies = recompute_policies(model);
  return policies[policies.size() - 2];
}
// The parts that a list may name: those that some block of the model has.
Recompute parts_of(const ModelDeck& model);

// "selective", "selective, 2 of a stage full".
std::string recompute_text(const TrainDeck& train);

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
