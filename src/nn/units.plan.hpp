#pragma once

#include "model/parameters.hpp"

namespace forge {

// All units in the order of the forward pass: token table, learned positions, blocks, output matrix, final norm. A tied
// output matrix is the token table. A layer with experts is two units: its block, whose feed-forward part is the router
// and the shared experts, and right behind it the experts: gate and up of expert 0, of expert 1, …, then every expert's
// down. Adapters are units behind these, those of experts apart. The blocks of multi-token prediction, with what each
// has besides, follow the others as layers L, L + 1, ….
std::vector<Unit> parameter_units(const ModelSpec& spec);

// "" where a Hugging Face directory can express the model, all of these parameters included, else why not.
std::string export_obstacle(const ModelDeck& model, const std::vector<Unit>& units);

// Biases of the layers with experts; none without model.router_bias.
std::vector<RouterBias> router_biases(const ModelSpec& spec);

// What one token's matrices and vectors are: the experts it goes to and all else, without the tables of tokens (unless
// it is the output matrix, too) and positions. Multi-token prediction doesn't count.
std::int64_t active_parameter_count(const ModelSpec& spec);

}  // namespace forge
