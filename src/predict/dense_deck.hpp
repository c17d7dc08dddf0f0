#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/deck.hpp"

namespace forge {

// "8B", "1.5T": a number of parameters as --models takes it, to three digits; and read back, none where the word is no
// size.
std::string size_text(double parameters);
std::optional<double> size_of_word(const std::string& word);

// A deck of a dense model of about so many parameters (predict/dense_shape.hpp), whose step has so many sequences.
std::string dense_deck_text(const std::string& name, double parameters, std::int64_t sequences);
// It, resolved on one rank with a plain layout, changed by `settings` first: a step has the sequences that make
// dense_step_tokens of their length. Throws BadInput.
Deck dense_deck(const std::string& name, double parameters, const std::vector<std::string>& settings);

}  // namespace forge
