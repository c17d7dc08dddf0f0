#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/yaml.hpp"

namespace forge {

// The values of output.profile and output.profile_ranks: ascending ranges of whole numbers, as in 10-12, 100.

// Whether one of the ranges has the number.
bool holds(const std::vector<NumberRange>& ranges, std::int64_t number);
// How many numbers there are from `least` to `most`.
std::int64_t numbers_in(const std::vector<NumberRange>& ranges, std::int64_t least, std::int64_t most);
// Reads the deck's value, a text or a list of texts: "" or the error. 0 alone is none where it isn't a legal number.
std::string read_ranges(const YamlNode& node, std::int64_t least, std::int64_t most, std::vector<NumberRange>& ranges);
// The rule that they break, "" when none.
std::string ranges_problem(const std::vector<NumberRange>& ranges, std::int64_t least, std::int64_t most);
// "10-12, 100"; "" of none.
std::string ranges_text(const std::vector<NumberRange>& ranges);
std::string legal_ranges(std::int64_t least, std::int64_t most);

}  // namespace forge
