#include "schedule/validate.hpp"

#include <array>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "schedule/progress.hpp"
#include "schedule/rendezvous.hpp"

namespace forge {

namespace {

std::string on_rank(int rank, const Action& action) {
  return "rank " + std::to_string(rank) + ": " + text_of(action);
}

bool is_other_backward(const Action& forward, const Action& action) {
  return action.op == Op::backward && (action.chunk != forward.chunk || action.microbatch != forward.microbatch);
}

std::string shape_violation(const Schedule& s) {
  if (s.ranks < 1 || s.chunks_per_rank < 1 || s.microbatches < 1)
    return "ranks, chunks per rank and microbatches must be at least 1";
  if (static_cast<int>(s.actions.size()) != s.ranks)
    return std::to_string(s.actions.size()) + " lists of actions for " + std::to_string(s.ranks) + " ranks";
  if (static_cast<int>(s.places.size()) != s.stages())
    return std::to_string(s.places.size()) + " places for " + std::to_string(s.stages()) + " stages";
  std::vector<int> seen(to_size(s.stages()), 0);
  for (const StagePlacement& place : s.places) {
    const bool legal = place.rank >= 0 && place.rank < s.ranks && place.chunk >= 0 && place.chunk < s.chunks_per_rank;
    if (!legal || seen[to_size(place.rank * s.chunks_per_rank + place.chunk)]++)
      return "stages must stand one to one on (rank, chunk), but (" + std::to_string(place.rank) + ", " +
             std::to_string(place.chunk) + ") is out of range or taken twice";
  }
  for (int rank = 0; rank < s.ranks; ++rank)
    for (const Action& action : s.actions[to_size(rank)]) {
      const bool last = &action == &s.actions[to_size(rank)].back();
      if (action.paired && (last || action.op != Op::forward || !is_other_backward(action, *(&action + 1))))
        return on_rank(rank, action) + ": it is paired with no backward action of another chunk or microbatch";
      const bool transfer = action.op >= Op::post_send_forward && action.op <= Op::wait_recv_backward;
      if (action.chunk < 0 || action.chunk >= s.chunks_per_rank) return on_rank(rank, action) + ": no such chunk";
      if (!is_group(action.op) && (action.microbatch < 0 || action.microbatch >= s.microbatches))
        return on_rank(rank, action) + ": no such microbatch";
      if (transfer && (action.peer < 0 || action.peer >= s.ranks || action.peer == rank))
        return on_rank(rank, action) + ": the peer must be another rank";
      if (!s.lowered && !is_compute(action.op)) return on_rank(rank, action) + ": stands only in lowered schedules";
    }
  return "";
}

// Where each action of a (stage, microbatch) stands in its rank's list; -1 = nowhere. Op::backward counts as B and as
// W.
class Positions {
 public:
  explicit Positions(const Schedule& schedule) : schedule_(schedule) {
    for (auto& cells : cells_) cells.assign(to_size(schedule.stages() * schedule.microbatches), -1);
    for (int rank = 0; rank < schedule.ranks; ++rank)
      for (int i = 0; i < static_cast<int>(schedule.actions[to_size(rank)].size()); ++i)
        enter(rank, i, schedule.actions[to_size(rank)][to_size(i)]);
  }

  int of(Op op, int stage, int microbatch) const {
    return cells_[to_size(static_cast<int>(op))][to_size(schedule_.index(stage, microbatch))];
  }
  const std::string& duplicate() const { return duplicate_; }

 private:
  void enter(int rank, int i, const Action& action) {
    if (is_group(action.op)) return;
    const int stage = schedule_.stage_at(rank, action.chunk);
    const auto set = [&](Op op) {
      int& cell = cells_[to_size(static_cast<int>(op))][to_size(schedule_.index(stage, action.microbatch))];
      if (cell >= 0 && duplicate_.empty()) duplicate_ = on_rank(rank, action) + " stands twice";
      cell = i;
    };
    if (action.op != Op::backward) return set(action.op);
    set(Op::backward_input);
    set(Op::backward_weight);
  }

  const Schedule& schedule_;
  std::array<std::vector<int>, op_count> cells_;
  std::string duplicate_;
};

// One (stage, microbatch) of a schedule under check.
class Cell {
 public:
  Cell(const Schedule& schedule, const Positions& positions, int stage, int microbatch)
      : schedule_(schedule), positions_(positions), stage_(stage), microbatch_(microbatch) {}

  int of(Op op) const { return positions_.of(op, stage_, microbatch_); }
  int neighbour(Op op, int stage) const { return positions_.of(op, stage, microbatch_); }
  std::string text(Op op) const {
    const StagePlacement& place = schedule_.places[to_size(stage_)];
    return on_rank(place.rank, {op, place.chunk, microbatch_}) + " (stage " + std::to_string(stage_) + ")";
  }

  // Each must exist, and stand behind the one before it.
  std::string in_order(std::initializer_list<Op> ops) const {
    Op previous = *ops.begin();
    for (const Op op : ops) {
      if (of(op) < 0) return text(op) + " is missing";
      if (of(op) < of(previous)) return text(op) + " stands before " + text(previous);
      previous = op;
    }
    return "";
  }
  std::string none_of(std::initializer_list<Op> ops) const {
    for (const Op op : ops)
      if (of(op) >= 0) return text(op) + " has no counterpart on another rank";
    return "";
  }
  std::string peers(std::initializer_list<Op> ops, int peer) const {
    const auto& list = schedule_.actions[to_size(schedule_.places[to_size(stage_)].rank)];
    for (const Op op : ops)
      if (of(op) >= 0 && list[to_size(of(op))].peer != peer)
        return text(op) + " must name rank " + std::to_string(peer);
    return "";
  }

 private:
  const Schedule& schedule_;
  const Positions& positions_;
  int stage_, microbatch_;
};

template <class Check>
std::string for_each_cell(const Schedule& schedule, const Positions& positions, Check&& check) {
  for (int stage = 0; stage < schedule.stages(); ++stage)
    for (int m = 0; m < schedule.microbatches; ++m) {
      const std::string violation = check(Cell(schedule, positions, stage, m), stage);
      if (!violation.empty()) return violation;
    }
  return "";
}

std::string first_of(std::initializer_list<std::string> violations) {
  for (const std::string& violation : violations)
    if (!violation.empty()) return violation;
  return "";
}

std::string completeness_violation(const Schedule& schedule, const Positions& positions) {
  if (!positions.duplicate().empty()) return positions.duplicate();
  return for_each_cell(schedule, positions, [&](const Cell& cell, int) {
    return cell.in_order({Op::forward, Op::backward_input, Op::backward_weight});
  });
}

std::string data_violation(const Schedule& schedule) {
  Progress progress(schedule);
  if (walk_all_ranks(schedule, progress, [](int, int, const Action&) {})) return "";
  std::string text = "the ranks wait for each other";
  for (int rank = 0; rank < schedule.ranks; ++rank)
    if (!progress.finished(rank)) text += "; " + progress.reason(rank);
  return text;
}

// The two sides of one edge of a stage: towards `other` (-1: the pipeline ends). Sends `made`, reads what arrives.
struct EdgeOps {
  Op made, post_send, wait_send, hand;  // what this stage makes for the other
  Op read, post_receive, wait_receive;  // what it reads from the other
};
constexpr EdgeOps towards_next{Op::forward,        Op::post_send_forward,  Op::wait_send_forward, Op::copy_forward,
                               Op::backward_input, Op::post_recv_backward, Op::wait_recv_backward};
constexpr EdgeOps towards_previous{
    Op::backward_input, Op::post_send_backward, Op::wait_send_backward, Op::copy_backward,
    Op::forward,        Op::post_recv_forward,  Op::wait_recv_forward};

std::string edge_violation(const Schedule& schedule, const Cell& cell, int stage, int other, const EdgeOps& ops) {
  const bool ends = other < 0 || other >= schedule.stages();
  const int rank = schedule.places[to_size(stage)].rank;
  const int peer = ends ? -1 : schedule.places[to_size(other)].rank;
  if (ends || peer == rank) {
    const std::string foreign = cell.none_of({ops.post_send, ops.wait_send, ops.post_receive, ops.wait_receive});
    if (!foreign.empty() || ends) return foreign.empty() ? cell.none_of({ops.hand}) : foreign;
    const std::string order = cell.in_order({ops.made, ops.hand});
    if (order.empty() && cell.neighbour(ops.made, other) < cell.of(ops.hand))
      return cell.text(ops.hand) + " stands behind its reader";
    return order;
  }
  return first_of({cell.none_of({ops.hand}), cell.in_order({ops.made, ops.post_send, ops.wait_send}),
                   cell.in_order({ops.post_receive, ops.wait_receive, ops.read}),
                   cell.peers({ops.post_send, ops.wait_send, ops.post_receive, ops.wait_receive}, peer)});
}

std::string transfer_violation(const Schedule& schedule, const Positions& positions) {
  return for_each_cell(schedule, positions, [&](const Cell& cell, int stage) {
    const std::string up = edge_violation(schedule, cell, stage, stage + 1, towards_next);
    return up.empty() ? edge_violation(schedule, cell, stage, stage - 1, towards_previous) : up;
  });
}

std::string group_violation(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    bool open = false;
    for (const Action& action : schedule.actions[to_size(rank)]) {
      if (is_group(action.op)) {
        if (open == (action.op == Op::begin_group)) return on_rank(rank, action) + " without its counterpart";
        open = !open;
      } else if (open && !is_post(action.op)) {
        return on_rank(rank, action) + " stands in a group of posts";
      }
    }
    if (open) return "rank " + std::to_string(rank) + ": a group is never closed";
  }
  return "";
}

}  // namespace

std::string find_violation(const Schedule& schedule) {
  const std::string shape = shape_violation(schedule);
  if (!shape.empty()) return shape;
  const Positions positions(schedule);
  const std::string compute = completeness_violation(schedule, positions);
  if (!compute.empty()) return compute;
  if (!schedule.lowered) return data_violation(schedule);
  const std::string lists = first_of({transfer_violation(schedule, positions), group_violation(schedule)});
  if (!lists.empty()) return lists;
  const std::string data = data_violation(schedule);
  return data.empty() ? find_rendezvous_violation(schedule) : data;
}

void validate(const Schedule& schedule) {
  const std::string violation = find_violation(schedule);
  if (!violation.empty()) throw BadInput("schedule " + schedule.name + ": " + violation);
}

}  // namespace forge
