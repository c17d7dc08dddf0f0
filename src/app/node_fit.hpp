#pragma once

#include <string>

#include "comm/world.hpp"
#include "plan/rank_memory.hpp"

namespace forge {

// All ranks, where they compute on the CPU: throws BadInput on every one where the ranks of some node have planned more
// memory than the node, a cgroup or `ulimit -v` leaves them, with the nearest change that fits.
void refuse_what_nodes_lack(const RunSetup& setup, RunKind kind, const World& world);

// Throws Shortage where this process can't have so many bytes. `what`: "the model's weights".
void refuse_more_than_is_left(std::size_t bytes, const std::string& what);

}  // namespace forge
