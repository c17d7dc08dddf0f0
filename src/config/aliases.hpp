#pragma once

#include <string>

namespace forge {

// What Hugging Face, torchtitan, Megatron, nanoGPT, KempnerForge, nanotron and others call a key of forge, or something
// that forge doesn't have.
struct Alias {
  const char* names;    // letters_of() of each, parted by spaces
  const char* key;      // forge's, "section.key"; "": it has none
  const char* meaning;  // what else there is to know; "": nothing
};

// nullptr where no other program is known to have such a key in a section; one of its own section comes first.
const Alias* alias_of_key(const std::string& section, const std::string& letters);
// For sections of a deck: `key` is the section.
const Alias* alias_of_section(const std::string& letters);

}  // namespace forge
