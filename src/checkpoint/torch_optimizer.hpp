#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/state.hpp"
#include "config/deck.hpp"
#include "core/heartbeat.hpp"

namespace forge {

// An optimizer's states under PyTorch's names: files of tensors optimizer.safetensors with the keys of the flattened
// state dict of torch.distributed.checkpoint.state_dict, "state.<parameter>.exp_avg", of parameters as the family's
// Hugging Face checkpoints name and shape them. Of torch.optim's
//   AdamW      step, exp_avg, exp_avg_sq          SGD        momentum_buffer
//   Muon       momentum_buffer of matrices, AdamW's of the others
//   Adafactor  step, row_var (rows, 1) and col_var (1, columns) of matrices, variance of the others
// `step`: the updates so far, an F32 scalar.

// Writes a checkpoint's optimizer state to a directory, in the types that the checkpoint has; several files with an
// index where one would be larger than `most_file_bytes`. Every byte that is read is verified; holds one tensor at a
// time. Throws BadCheckpoint, BadInput where PyTorch has no such optimizer, IoFailed.
void export_optimizer(const std::string& checkpoint, const std::string& directory, std::uint64_t most_file_bytes);

// Fills this rank's state, `state`, from a directory or file of checkpoint.optimizer_from. Reads this rank's part only,
// but all of a tensor that the file has transposed. Returns the updates so far. One BadInput lists every tensor that is
// missing, has another shape or another step.
std::int64_t load_optimizer(const Deck& deck, const std::vector<StateTensor>& state, Stream& stream,
                            Heartbeat* heartbeat);

}  // namespace forge
