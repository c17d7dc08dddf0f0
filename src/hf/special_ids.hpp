#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace forge {

// The tokens of a model that mean no text.
struct SpecialIds {
  std::vector<std::int32_t> ends;  // a text ends with one of them; empty: none is known
  std::optional<std::int32_t> begin, padding;
};

// The ids of a Hugging Face directory: from generation_config.json, else config.json, each of the three for itself, as
// transformers' generate takes them. A file that isn't there, null and negative numbers give none. Throws BadInput for
// anything else than ids.
SpecialIds read_special_ids(const std::string& directory);

// generation_config.json for these ids: `source`, the text of such a file, with the ends put into it, or a new one.
std::string generation_config(const SpecialIds& ids, const std::string& source);

}  // namespace forge
