#pragma once

#include <string>

#include "app/command_line.hpp"
#include "config/deck.hpp"
#include "predict/outcome.hpp"
#include "predict/search.hpp"

namespace forge {

// The deck of the command line with these, resolved on one rank. Throws BadInput.
Deck searched_deck(const CommandLine& line);

// The options of a search, as a shell takes them, but for model and ranks: " --machine h100_8 --seconds 60".
std::string search_words(const CommandLine& line);
// A word of a command as a shell takes it: 'with spaces'.
std::string shell_word(const std::string& word);

// The options of a search on all threads of the process; `seconds`: without --seconds.
SearchOptions search_options(const CommandLine& line, int ranks, int best, double seconds);

// The result of a search, as a deck: a title, the prediction, and the command that finds it, then the keys that it
// needs.
std::string layout_deck(const Machine& machine, const Outcome& outcome, const std::string& model,
                        const std::string& command);

}  // namespace forge
