#include "core/category.hpp"

namespace forge {

std::string_view name_of(Category category) {
  constexpr std::string_view names[category_count] = {"parameters", "gradients", "optimizer", "activations",
                                                      "workspace",  "data",      "library"};
  return names[static_cast<int>(category)];
}

}  // namespace forge
