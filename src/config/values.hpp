#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/keys.hpp"
#include "config/yaml.hpp"

namespace forge {

// Puts the value of a YAML node into a deck. Returns "" or its error ("= 'x': legal: integer, 1 to 9").
// Integers are decimal digits without leading zeros, or a decimal number that is one exactly (1e3, 4.0e2). Numbers are
// finite. Truth values are true and false. A number in quotes is a text.
std::string read_value(const Key& key, const YamlNode& node, Deck& deck);

// "a list", "'x'": a node in a message.
std::string kind_of(const YamlNode& node);

// A finite decimal number; none where the text is something else.
std::optional<double> parse_number(std::string_view text);
// An integer as decks write them; none where the text is something else.
std::optional<std::int64_t> parse_whole(std::string_view text);

}  // namespace forge
