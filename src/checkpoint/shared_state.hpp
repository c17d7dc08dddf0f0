#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/state.hpp"
#include "comm/communicator.hpp"

namespace forge {

// The state that a rank loads. `shared`: small tensors that every rank needs whole, such as the routers' biases, which
// the first rank reads for all: else each would open the one shard that holds them.
struct LoadedState {
  std::vector<StateTensor> own, shared;
};
// Collective.
LoadedState split_shared(Communicator& ranks, const std::vector<StateTensor>& state);
// The state split as `other` was.
LoadedState split_like(const LoadedState& other, const std::vector<StateTensor>& state);

// Their bytes, one behind the other, in the types of the tensors. Throws as CheckpointFiles::read() does.
std::string bytes_of_shared(CheckpointFiles& files, const std::vector<StateTensor>& shared);
// Collective: the first rank's bytes into the memory of all ranks' tensors.
void hand_out_shared(Communicator& ranks, std::string bytes, const std::vector<StateTensor>& shared, Stream& stream);

}  // namespace forge
