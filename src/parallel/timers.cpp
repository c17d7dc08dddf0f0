#include "parallel/timers.hpp"

namespace forge {

std::string_view name_of(Phase phase) {
  constexpr std::string_view names[phase_count] = {"data",      "forward",    "backward", "reduce",
                                                   "optimizer", "validation", "output"};
  return names[to_size(phase)];
}

}  // namespace forge
