#pragma once

#include <string>

#include "config/deck.hpp"

namespace forge {

// A deck of a Hugging Face directory's model on so many ranks, as far as a model alone says it, for show and plan: a
// step of one sequence a rank, all ranks as shards. Without data. Throws BadInput.
std::string model_deck(const std::string& directory, int ranks);

// Throws where a text of so many tokens is longer than longrope's original context: a text that grows past it would
// have other frequencies from there on, and keys that are kept have been turned by the first ones.
void refuse_long_text(const ModelDeck& model, std::int64_t tokens);

// The resolved deck without model.hf: the deck itself has all dimensions that the directory gives.
Deck without_directory(const Deck& deck);

}  // namespace forge
