#pragma once

#include <string>

#include "config/deck.hpp"

namespace forge {

// Every key of a deck as YAML, in the table's order. read_deck gives the same values back, bit for bit.
std::string write_deck(const Deck& deck);

// Text of `forge help <section>`; "" = all sections.
std::string help_text(const std::string& section = "");
// Likewise of the keys of a name; section "" = of all sections. Empty where there are none.
std::string help_of_keys(const std::string& section, const std::string& name);

// docs/inputs.md, which a test holds equal to this.
std::string inputs_markdown();

}  // namespace forge
