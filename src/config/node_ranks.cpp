#include "config/node_ranks.hpp"

#include <cstdlib>
#include <string>

#include "core/error.hpp"
#include "core/faults.hpp"

namespace forge {

int asked_node_ranks() {
  const char* const text = setting_of_tests("FORGE_RANKS_PER_NODE");
  if (!text) return 0;
  char* end = nullptr;
  const long ranks = std::strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || ranks < 1 || ranks > (1 << 24))
    throw BadInput("FORGE_RANKS_PER_NODE = " + std::string(text) + "; legal: a number of ranks from 1 to 2^24");
  return static_cast<int>(ranks);
}

}  // namespace forge
