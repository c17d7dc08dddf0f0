#pragma once

#include <string>

#include "config/deck.hpp"

namespace forge {

// Checks of options of `forge plan` and of the explorer; each throws one BadInput that names the option.
void check_best(double best);  // --best: a whole number
void check_seconds(double seconds);
void check_imbalance(double imbalance);
// An imbalance needs a model with experts; `name`: of the deck.
void check_imbalance(double imbalance, const ModelDeck& model, const std::string& name);

}  // namespace forge
