#pragma once

#include <string_view>

namespace forge {

// Whether a name matches a pattern, where * stands for any characters, also none, and ? for one.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace forge
