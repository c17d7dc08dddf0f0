#include "comm/world.hpp"

#include "config/node_ranks.hpp"

namespace forge {

int World::node_ranks() const {
  if (const int asked = asked_node_ranks(); asked > 0) return asked;
  const int each = size() / nodes();
  for (int r = 0; r < size(); ++r)
    if (node(r) != r / each) return 0;
  return each;
}

}  // namespace forge
