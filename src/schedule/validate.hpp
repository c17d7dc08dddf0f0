#pragma once

#include <string>

#include "schedule/schedule.hpp"

namespace forge {

// The error of a schedule, "" when it is proved legal. The text names rank, action and rule. Checked, in this
// order:
//  1. shape: as many lists as ranks, every stage at exactly one (rank, chunk), every action's numbers in range;
//  2. complete: F, B and W of every (stage, microbatch) exactly once, in the order F, B, W;
//  3. data: no action waits for a later one (a cycle between ranks, or a list in the wrong order);
//  and for lowered schedules
//  4. transfers: each output and gradient that crosses ranks has one post and one wait on each side, in the right
//     order, and no others exist; a transfer within a rank is a local copy; groups contain posts
//     only;
//  5. rendezvous: with sends that block until the receive is launched, and with every launch (a group, or a post
//     outside of one) blocking its rank until all of it is matched, the ranks reach the end; the k-th send from
//     one rank to another meets the k-th receive there and both name one message. This is an order of
//     all launches that every rank keeps to, so it also proves that no order of communicators can
//     block: the collectives of a list stand at the same place in the lists of all ranks that share
//     them, which run the same list.
std::string find_violation(const Schedule& schedule);

// Throws BadInput with "schedule NAME: " and the violation.
void validate(const Schedule& schedule);

}  // namespace forge
