#pragma once

namespace forge {

// In builds with tests: consecutive ranks of a node, as FORGE_RANKS_PER_NODE says; 0 where it isn't set. Throws
// BadInput where it is no number from 1 on.
int asked_node_ranks();

}  // namespace forge
