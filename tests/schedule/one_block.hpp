#pragma once

#include "plan/tasks.hpp"

namespace forge {

// A rank's share where every stage has one block, and no parameters at all.
inline RankShare one_block_share(const Schedule& schedule, int rank) {
  RankShare share;
  share.pp_rank = rank;
  share.chunks.resize(static_cast<std::size_t>(schedule.chunks_per_rank));
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const StagePlacement& place = schedule.places[static_cast<std::size_t>(stage)];
    if (place.rank != rank) continue;
    share.chunks[static_cast<std::size_t>(place.chunk)] = {stage == 0, stage, 1, 0, stage + 1 == schedule.stages()};
  }
  for (const StageContent& chunk : share.chunks) share.layers.push_back(stage_layers(chunk, {}, false));
  return share;
}

inline bool is_pass_of_block(const Task& task, const RankShare& share) {
  if (task.op < TaskOp::forward || task.op > TaskOp::backward_weight) return false;
  return share.layers[static_cast<std::size_t>(task.action.chunk)][static_cast<std::size_t>(task.layer)].kind ==
         LayerKind::block;
}

}  // namespace forge
