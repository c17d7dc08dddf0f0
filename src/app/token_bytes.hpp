#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.hpp"
#include "config/deck.hpp"

namespace forge {

// Bytes of text that each id of the model stands for (V), on all ranks; none where no tokenizer is known and tokens
// aren't bytes. The first rank reads the tokenizer. `tokenizer`, `pattern`: as ModelText has them. BadInput where the
// tokenizer can't be read; with a `note` the tokenizer of model.hf may be one that can't: then the first rank has a
// line about it there, and there are none.
std::vector<std::int64_t> token_bytes(const Deck& deck, const World& world, const std::string& tokenizer = "",
                                      const std::string& pattern = "", std::string* note = nullptr);

}  // namespace forge
