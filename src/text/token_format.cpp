#include "text/token_format.hpp"

#include <array>

#include "config/text.hpp"
#include "core/error.hpp"

namespace forge {

std::string_view name_of(TokenFormat format) {
  constexpr std::string_view names[] = {"raw", ".npy", "Megatron", "llm.c", ".ds"};
  return names[static_cast<int>(format)];
}

TokenFormat token_format_named(const std::string& word) {
  constexpr std::array names{"raw", "npy", "megatron", "llm.c", "ds"};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (word == names[i]) return static_cast<TokenFormat>(i);
  throw BadInput("format " + shown(word) + "; legal: raw | npy | megatron | llm.c | ds");
}

}  // namespace forge
