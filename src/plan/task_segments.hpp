#pragma once

#include "nn/segments.plan.hpp"
#include "plan/tasks.hpp"

namespace forge {

// The work and collectives of a layer's pass on its rank, in order, where the router loads all experts alike; of
// matrices that the optimizer computes whole, their products and kernels; nothing for other tasks, whose collectives
// sends_of() of plan/traffic.hpp has. Norms of gradients and updates of elements are not in it.
Segments segments_of(const BufferContext& context, const RankShare& share, const Task& task);

// FLOP of products and attention in some tasks, as the rank executes them: with recomputation, padding and copies.
double flops_of(const BufferContext& context, const RankShare& share, const std::vector<Task>& tasks);

// Workspace of the rank's blocks for their rounded products, whatever the pass.
RoundingSizes rounding_sizes(const BufferContext& c, const RankShare& share);

}  // namespace forge
