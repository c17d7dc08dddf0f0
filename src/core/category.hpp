#pragma once

#include <string_view>

namespace forge {

// The uses of device memory; `show` and the job header report by them.
enum class Category { parameters, gradients, optimizer, activations, workspace, data, library };
inline constexpr int category_count = 7;
constexpr std::string_view name_of(Category category) {
  constexpr std::string_view names[category_count] = {"parameters", "gradients", "optimizer", "activations",
                                                      "workspace",  "data",      "library"};
  return names[static_cast<int>(category)];
}

}  // namespace forge
