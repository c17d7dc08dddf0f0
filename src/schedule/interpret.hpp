#pragma once

#include "core/error.hpp"
#include "schedule/progress.hpp"
#include "schedule/schedule.hpp"

namespace forge {

// The only place that knows what an Op means to who executes it. An Executor has, each taking const Action&:
//   forward, backward_input, backward_weight, backward, recompute,
//   begin_group, end_group, post_send, wait_send, post_recv, wait_recv, hand_over   (is_forward_transfer(action.op)),
//   gather_parameters, wait_parameters, release_parameters, reduce_gradients, wait_gradients.
template <class Executor>
void execute(const Action& action, Executor& executor) {
  switch (action.op) {
    case Op::forward:
      return executor.forward(action);
    case Op::backward_input:
      return executor.backward_input(action);
    case Op::backward_weight:
      return executor.backward_weight(action);
    case Op::backward:
      return executor.backward(action);
    case Op::recompute:
      return executor.recompute(action);
    case Op::begin_group:
      return executor.begin_group(action);
    case Op::end_group:
      return executor.end_group(action);
    case Op::post_send_forward:
    case Op::post_send_backward:
      return executor.post_send(action);
    case Op::wait_send_forward:
    case Op::wait_send_backward:
      return executor.wait_send(action);
    case Op::post_recv_forward:
    case Op::post_recv_backward:
      return executor.post_recv(action);
    case Op::wait_recv_forward:
    case Op::wait_recv_backward:
      return executor.wait_recv(action);
    case Op::hand_forward:
    case Op::hand_backward:
      return executor.hand_over(action);
    case Op::gather_parameters:
      return executor.gather_parameters(action);
    case Op::wait_parameters:
      return executor.wait_parameters(action);
    case Op::release_parameters:
      return executor.release_parameters(action);
    case Op::reduce_gradients:
      return executor.reduce_gradients(action);
    case Op::wait_gradients:
      return executor.wait_gradients(action);
  }
  throw Error("schedule: unknown operation");
}

// Walks one rank's list: the trainer.
template <class Executor>
void execute_rank(const Schedule& schedule, int rank, Executor& executor) {
  for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) execute(action, executor);
}

// Walks all ranks in an order that respects every dependency, each rank as far as it can go: the simulator and the
// memory planner. visit(rank, position, action). Returns false where the ranks wait for each other; what was reached is
// in `progress`.
template <class Visit>
bool walk_all_ranks(const Schedule& schedule, Progress& progress, Visit&& visit) {
  bool moved = true;
  while (moved) {
    moved = false;
    for (int rank = 0; rank < schedule.ranks; ++rank)
      while (!progress.finished(rank) && progress.ready(rank)) {
        visit(rank, progress.position(rank), progress.next(rank));
        progress.advance(rank);
        moved = true;
      }
  }
  return progress.finished();
}

// The same with one executor per rank: executors[rank]. Throws Error where the ranks wait for each other.
template <class Executors>
void execute_all_ranks(const Schedule& schedule, Executors& executors) {
  Progress progress(schedule);
  const bool complete = walk_all_ranks(schedule, progress, [&](int rank, int, const Action& action) {
    execute(action, executors[static_cast<std::size_t>(rank)]);
  });
  require(complete, "schedule: the ranks wait for each other (validate() names the actions)");
}

}  // namespace forge
