#pragma once

#include <set>
#include <string>

#include "config/deck.hpp"
#include "config/read.hpp"
#include "config/report.hpp"

namespace forge {

// A part of check_deck (schedule/check_deck.hpp): all checks that don't need the number of ranks. Resolves
// model.kv_heads and head_dim, and, for training, train.accumulate, schedule.virtual_stages and optimizer.decay_steps;
// without `has_model` (model.hf could not be read) the model is left out. Reports all errors, each with the values, the
// equation they violate, and the nearest legal values; features that this version lacks are refused by key. Returns the
// sections with values out of their own range: equations over those have no meaning.
std::set<std::string> check_values(Deck& deck, Needs needs, bool has_model, Report& report);

}  // namespace forge
