#pragma once

#include "schedule/schedule.hpp"

namespace forge {

// What lower() adds beyond transfers.
struct LowerOptions {
  bool recompute = false;          // a recompute before every B (train.recompute is not none)
  bool gather_parameters = false;  // ZeRO-3: parameters are gathered before use and released after it
  bool keep_for_step = false;      // train.gather step: gathered at the first use of the step, released after the last
  bool reduce_every_microbatch =
      false;  // train.accumulate sharded: a reduction per microbatch, else one after the last W
};

// Turns compute actions into everything that a rank does:
//  - B directly followed by W of the same chunk and microbatch becomes Op::backward where no other rank waits for B;
//  - recompute stands before the wait for the output gradient, so that it runs while the gradient is under way;
//  - every transfer is posted and waited for in separate actions. Sends are posted right after what produced them; the
//    receive is posted on the other side at the same point of the schedule's own clock (unit times), and what a rank
//    posts at one point is one group. Groups are therefore matched in one global order, and nothing deadlocks when
//    sends block until their receive is posted (NCCL), whatever the number of ranks in a cycle;
//  - a send is waited for before the next post, a receive before its reader;
//  - a stage whose neighbour is on the same rank hands over locally;
//  - reductions follow the last W of a chunk (or every W), and end before the list does.
// Throws Error if the compute actions cannot be executed at all (see validate.hpp).
Schedule lower(const Schedule& compute, const LowerOptions& options);

}  // namespace forge
