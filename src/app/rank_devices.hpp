#pragma once

#include "comm/world.hpp"

namespace forge {

// Chooses this rank's device by its number on the node. All ranks: throws BadInput on every one where two ranks of a
// node would have the same GPU, which NCCL refuses, unless FORGE_SHARE_GPU=1.
void choose_device(const World& world);

}  // namespace forge
