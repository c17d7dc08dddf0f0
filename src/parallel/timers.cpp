#include "parallel/timers.hpp"

namespace forge {

std::string_view name_of(Phase phase) {
  constexpr std::string_view names[phase_count] = {"data",      "forward",    "backward", "reduce",
                                                   "optimizer", "validation", "output"};
  return names[static_cast<std::size_t>(phase)];
}

}  // namespace forge
