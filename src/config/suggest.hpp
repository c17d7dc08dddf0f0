#pragma once

#include <string>

namespace forge {

// Proposals of a message in the place of a name that forge doesn't have.

struct Suggestion {
  std::string text;  // "forge calls it optimizer.learning_rate", "nearest known key: train.steps", or forge's lack
  std::string key;   // that key; empty where the text is about no single one
};
// For a key of a section, or of any where it is empty: names of other programs first (config/aliases.hpp), then the
// same letters in another section, then a key of this section that few letters tell apart. The text is empty where
// nothing is like it.
Suggestion suggest_key(const std::string& section, const std::string& name);
// For a section: "nearest known section: optimizer", or a sentence; empty where nothing is like it.
std::string suggest_section(const std::string& name);
// The keys of a section, or where they are listed: "keys of mesh: pp, …".
std::string keys_of_section(const std::string& section);
// For `forge help NAME`: "; did you mean optimizer?", or the legal names.
std::string help_suggestion(const std::string& name);

// The key that "section.key" or a bare name is in any spelling, or stands for: "train.steps"; "" for none, or several.
enum class Naming { spelling, meaning };
std::string key_named(const std::string& name, Naming naming = Naming::meaning);

// A name in lower case without "_", "-" and ".".
std::string letters_of(const std::string& name);
// How many letters may differ where one name is taken for another.
std::size_t far_enough(const std::string& name);

}  // namespace forge
