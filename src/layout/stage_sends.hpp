#pragma once

#include "core/traffic.hpp"
#include "layout/stage.hpp"
#include "model/buffers.hpp"

namespace forge {

// The collectives of a layer's pass, in no order; `recompute`: those that recomputing what the policy dropped takes.
// Of dropless dispatch one round, as where the router loads all experts alike.
std::vector<Sent> sends_of(const BufferContext& c, const StageLayer& layer, Pass pass, bool recompute = false);

// What the pass computes on this rank in a training step, in its order, with the same rows for all experts.
Operations operations_of(const BufferContext& c, int cp_rank, const StageLayer& layer, Pass pass,
                         bool recompute = false);

}  // namespace forge
