#pragma once

#include <memory>

#include "comm/communicator.hpp"

namespace forge {

// A communicator of the same ranks for device memory: NCCL in the CUDA build (its host operations go through `ranks`'s
// kind), a duplicate of `ranks` in the CPU build. Collective.
std::unique_ptr<Communicator> device_communicator(Communicator& ranks);

// Whether ranks that are processes may share a GPU: FORGE_SHARE_GPU=1, for tests of correctness. Throws BadInput where
// it is neither 1 nor 0.
bool devices_are_shared();

// Sets the variables of NCCL and CUDA that the user hasn't set: one algorithm for sums, so that they are repeatable,
// the host's order for communicators that work side by side, a queue for each stream, and settings for shared GPUs. To
// be called in a process before its other threads start; the CPU build has nothing to set.
void set_device_environment(int rank);

}  // namespace forge
