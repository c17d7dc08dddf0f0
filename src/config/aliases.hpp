#pragma once

#include <string>

namespace forge {

// Names of a key of forge, or of a thing that forge doesn't have, in Hugging Face, torchtitan, Megatron, nanoGPT,
// KempnerForge, nanotron and others.
struct Alias {
  const char* names;    // letters_of() of each, parted by spaces
  const char* key;      // forge's, "section.key"; "": it has none
  const char* meaning;  // a further remark; "": none
};

// nullptr where no other program is known to have such a key in a section; one of its own section comes first.
const Alias* alias_of_key(const std::string& section, const std::string& letters);
// For sections of a deck: `key` is the section.
const Alias* alias_of_section(const std::string& letters);

}  // namespace forge
