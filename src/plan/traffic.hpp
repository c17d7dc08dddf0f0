#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/collectives.hpp"
#include "model/buffers.hpp"
#include "plan/tasks.hpp"

namespace forge {

// The collectives of a task, in their order.
std::vector<Sent> sends_of(const BufferContext& context, const RankShare& share, const Task& task);

// The distinct calls of a training step and its update, once each, in order of groups; the schedule is lowered.
std::vector<Sent> distinct_calls(const BufferContext& context, const RankShare& share, const Schedule& schedule);

// One rank's bytes in a training step (gradients, update, gathering of the updated parameters) on each of a mesh's
// groups, under the names of Mesh::traffic(), from the deck alone; equal to the counted bytes. The figures and their
// derivation: docs/notes/bytes.md. `schedule` is lowered.
std::vector<std::pair<std::string, Traffic>> plan_traffic(const BufferContext& context, const ModelSpec& whole,
                                                          const MeshShape& mesh, const RankShare& share,
                                                          const Schedule& schedule);

// Likewise of other ranks of the share's stage, which differ in the shard of the units that data-parallel ranks share:
// one for each of `shards`. Only reductions of replicated parameters differ.
std::vector<std::vector<std::pair<std::string, Traffic>>> plan_traffic_of_shards(const BufferContext& context,
                                                                                 const ModelSpec& whole,
                                                                                 const MeshShape& mesh, RankShare share,
                                                                                 const Schedule& schedule,
                                                                                 const std::vector<int>& shards);

}  // namespace forge
