#pragma once

#include "config/deck.hpp"
#include "model/parameters.hpp"

namespace forge {

// The deck's rule for a tensor's updates: by the optimizer, and by the first of optimizer.groups that matches its
// name.
struct UpdateRule {
  double learning_rate = 0;  // at its full height
  double weight_decay = 0;
  bool whole = false;  // a matrix that is updated whole

  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;
};
UpdateRule update_rule(const OptimizerDeck& deck, UnitKind kind, const Parameter& parameter);

// Marks the units all of whose tensors match one of these patterns (train.frozen), by their own or Hugging Face's
// names; beside adapters all other units. Throws BadInput where a pattern matches no tensor, or only a part of a unit's
// tensors match, or nothing is left to train.
void freeze(const std::vector<std::string>& patterns, std::vector<Unit>& units);

// Throws BadInput where a group's pattern matches no tensor, or its optimizer isn't possible for one.
void check_groups(const OptimizerDeck& deck, const std::vector<Unit>& units);

}  // namespace forge
