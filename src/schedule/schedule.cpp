#include "schedule/schedule.hpp"

#include <array>

#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr std::array<std::string_view, op_count> op_names = {"forward",
                                                             "backward_input",
                                                             "backward_weight",
                                                             "backward",
                                                             "begin_group",
                                                             "end_group",
                                                             "post_send_forward",
                                                             "wait_send_forward",
                                                             "post_recv_forward",
                                                             "wait_recv_forward",
                                                             "post_send_backward",
                                                             "wait_send_backward",
                                                             "post_recv_backward",
                                                             "wait_recv_backward",
                                                             "copy_forward",
                                                             "copy_backward"};

std::string short_name(Op op) {
  switch (op) {
    case Op::forward:
      return "F";
    case Op::backward_input:
      return "B";
    case Op::backward_weight:
      return "W";
    case Op::backward:
      return "BW";
    default:
      return std::string(name_of(op));
  }
}

}  // namespace

std::string_view name_of(Op op) {
  return op_names[to_size(op)];
}

std::string text_of(const Action& action) {
  if (is_group(action.op)) return short_name(action.op);
  std::string text =
      short_name(action.op) + " c" + std::to_string(action.chunk) + " m" + std::to_string(action.microbatch);
  if (action.peer >= 0) text += (is_send_post(action.op) ? " to " : " peer ") + std::to_string(action.peer);
  return text;
}

int Schedule::stage_at(int rank, int chunk) const {
  for (int stage = 0; stage < static_cast<int>(places.size()); ++stage)
    if (places[to_size(stage)] == StagePlacement{rank, chunk}) return stage;
  throw Error("schedule: no stage on rank " + std::to_string(rank) + ", chunk " + std::to_string(chunk));
}

std::vector<StagePlacement> round_robin_places(int ranks, int chunks) {
  std::vector<StagePlacement> places;
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (int rank = 0; rank < ranks; ++rank) places.push_back({rank, chunk});
  return places;
}

std::vector<StagePlacement> v_places(int ranks) {
  std::vector<StagePlacement> places;
  for (int rank = 0; rank < ranks; ++rank) places.push_back({rank, 0});
  for (int rank = ranks - 1; rank >= 0; --rank) places.push_back({rank, 1});
  return places;
}

}  // namespace forge
