#pragma once

#include "model/buffers.hpp"

namespace forge {

// Buffers of multi-token prediction (Liu et al. 2024, "DeepSeek-V3", arXiv 2412.19437, section 2.2), beside those of
// its module's block (saved_of_block and the like, with a layer of L or more). All per depth.

// Depth d's rows of the batch, under the names of the model's own.
BufferList batch_of_mtp(const BufferContext&);
// What joins embedding and hidden state; and what the norm behind the block keeps.
BufferList saved_of_mtp(const BufferContext&);
BufferList saved_of_depth_norm(const BufferContext&);
// What the head keeps of a state that reaches it from another stage, normalised there: the gradient of its loss.
BufferList saved_of_state(const BufferContext&);
// What is recomputed from that of a module.
BufferList recomputed_of_mtp(const BufferContext&);
// The gradient of the block's input, that W of the projection reads.
BufferList gradients_of_mtp(const BufferContext&);
BufferList scratch_backward_mtp(const BufferContext&);
// Once per rank: sums of losses.
void add_mtp_run(const BufferContext&, BufferList&);

}  // namespace forge
