#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/model_text.hpp"
#include "hf/json_input.hpp"

namespace forge {

inline constexpr JsonLimits line_limits{.depth = 3, .values = 4'000'000};

// The ids of a member of a line, a text or a list of them. BadInput that begins with `place`: another kind of value, or
// an id outside of the vocabulary.
std::vector<std::int32_t> ids_of_member(const nlohmann::json& value, const std::string& name, const ModelText& text,
                                        std::int64_t vocabulary, const std::string& place);
// The token before a text that has none; BadInput where the model names none.
std::int32_t token_before_text(const ModelText& text, const std::string& place, const std::string& member);

}  // namespace forge
