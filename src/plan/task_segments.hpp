#pragma once

#include "nn/segments.plan.hpp"
#include "plan/tasks.hpp"

namespace forge {

// What a layer's pass computes and sends on its rank, in its order, where the router loads all experts alike; of
// matrices that the optimizer computes whole, their products and kernels; nothing for other tasks, whose collectives
// sends_of() of plan/traffic.hpp has. Norms of gradients and updates of elements are not in it.
Segments segments_of(const BufferContext& context, const RankShare& share, const Task& task);

// Those of products and attention of some tasks: what the rank executes, recomputation, padding and copies included.
double flops_of(const BufferContext& context, const RankShare& share, const std::vector<Task>& tasks);

// What the blocks of the rank need of workspace for their rounded products, whatever the pass.
RoundingSizes rounding_sizes(const BufferContext& c, const RankShare& share);

}  // namespace forge
