#pragma once

#include "schedule/schedule.hpp"

namespace forge {

// Turns compute actions into everything that a rank does with its stages and their neighbours:
//  - B directly followed by W of the same chunk and microbatch becomes Op::backward where no other rank waits for B;
//  - every transfer is posted and waited for in separate actions. Sends are posted right after their producer; the
//    receive is posted on the other side at the same point of the schedule's own clock (unit times), and a rank's
//    posts at one point are one group. Groups are therefore matched in one global order, and nothing deadlocks when
//    sends block until their receive is posted (NCCL), whatever the number of ranks in a cycle;
//  - a send is waited for before the next post, a receive before its reader;
//  - two actions that run at once wait for the inputs of both, and nothing is posted between them;
//  - a stage whose neighbour is on the same rank has a local copy.
// The work inside of a compute action, with gathers and reductions: plan/tasks.hpp.
// Throws Error if the compute actions cannot be executed at all (see validate.hpp).
Schedule lower(const Schedule& compute);

// One forward pass of a microbatch through the same stages: evaluation. Not lowered.
Schedule forward_only(const Schedule& schedule);

}  // namespace forge
