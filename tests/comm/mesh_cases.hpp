#pragma once

#include "comm/communicator.hpp"

namespace forge::mesh_cases {

// Every mesh of world.size() ranks: each of its groups has the ranks that the grid says, in its order, and works.
// Collective; uses gtest's EXPECT_*.
void every_mesh(Communicator& world);
// The groups' counts of bytes sent.
void traffic(Communicator& world);

}  // namespace forge::mesh_cases
