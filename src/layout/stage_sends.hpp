#pragma once

#include "core/traffic.hpp"
#include "layout/stage.hpp"
#include "model/buffers.hpp"

namespace forge {

// The collectives of a layer's pass, in no order; `recompute`: those that recomputing what the policy dropped takes.
// Of dropless dispatch one round, as where the router loads all experts alike.
std::vector<Sent> sends_of(const BufferContext& c, const StageLayer& layer, Pass pass, bool recompute = false);

}  // namespace forge
