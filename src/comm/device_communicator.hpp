#pragma once

#include <memory>

#include "comm/communicator.hpp"

namespace forge {

// The same ranks, for device memory: NCCL in the CUDA build (its host operations go through `ranks`'s kind), a
// duplicate of `ranks` in the CPU build. Collective.
std::unique_ptr<Communicator> device_communicator(Communicator& ranks);

}  // namespace forge
