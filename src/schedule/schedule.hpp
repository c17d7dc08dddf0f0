#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

// An action's kind. Generators write the first four; lower() (lower.hpp) adds the rest. `chunk` and `microbatch`
// name the rank's own chunk, also in transfers: the chunk whose output or gradient leaves, or whose input arrives.
enum class Op : std::uint8_t {
  forward,          // F
  backward_input,   // B: gradient of the chunk's input
  backward_weight,  // W: gradient of the chunk's weights
  backward,         // B directly followed by W, block by block: both read the output gradient from one place
  begin_group,      // the posts up to end_group are launched together and complete together
  end_group,
  post_send_forward,   // output of (chunk, microbatch) to the next stage, on rank `peer`
  wait_send_forward,   // the output's buffer is free again
  post_recv_forward,   // input of (chunk, microbatch) from the previous stage, on rank `peer`
  wait_recv_forward,   // the input has arrived
  post_send_backward,  // input gradient of (chunk, microbatch) to the previous stage, on rank `peer`
  wait_send_backward,
  post_recv_backward,  // output gradient of (chunk, microbatch) from the next stage, on rank `peer`
  wait_recv_backward,
  copy_forward,   // output of (chunk, microbatch) becomes the input of the next stage, on the same rank
  copy_backward,  // input gradient becomes the output gradient of the previous stage, on the same rank
};

inline constexpr int op_count = static_cast<int>(Op::copy_backward) + 1;

// "forward", "post_send_backward", …: the names of the CSV format.
std::string_view name_of(Op op);

constexpr bool is_compute(Op op) {
  return op <= Op::backward;
}
constexpr bool computes_input_gradient(Op op) {
  return op == Op::backward_input || op == Op::backward;
}
constexpr bool computes_weight_gradient(Op op) {
  return op == Op::backward_weight || op == Op::backward;
}
constexpr bool is_post(Op op) {
  return op == Op::post_send_forward || op == Op::post_recv_forward || op == Op::post_send_backward ||
         op == Op::post_recv_backward;
}
constexpr bool is_group(Op op) {
  return op == Op::begin_group || op == Op::end_group;
}
constexpr bool is_send_post(Op op) {
  return op == Op::post_send_forward || op == Op::post_send_backward;
}
constexpr bool is_send(Op op) {
  return is_send_post(op) || op == Op::wait_send_forward || op == Op::wait_send_backward;
}
// For a transfer or local copy: true for activations, false for gradients.
constexpr bool is_forward_transfer(Op op) {
  return (op >= Op::post_send_forward && op <= Op::wait_recv_forward) || op == Op::copy_forward;
}

struct Action {
  Op op = Op::forward;
  int chunk = 0;
  int microbatch = 0;
  int peer = -1;        // the other rank along pp of a transfer, else -1
  bool paired = false;  // of a forward action: it and the backward action behind it run at once

  friend bool operator==(const Action&, const Action&) = default;
};

// "B c0 m3", "post_send_forward c0 m3 to 1": for messages and text drawings.
std::string text_of(const Action& action);

// Where a stage lives.
struct StagePlacement {
  int rank = 0;
  int chunk = 0;

  friend bool operator==(const StagePlacement&, const StagePlacement&) = default;
};

// One optimizer step of a pipeline: the actions of every rank, in order. A value; nothing in it refers to a model.
// Stage s of ranks * chunks_per_rank lives at places[s]; the activations flow from stage 0 to the last one.
struct Schedule {
  std::string name;
  int ranks = 1;  // pp
  int chunks_per_rank = 1;
  int microbatches = 1;                      // M
  std::vector<StagePlacement> places;        // by stage
  std::vector<std::vector<Action>> actions;  // by rank
  bool lowered = false;                      // transfers are there (lower.hpp)

  int stages() const { return ranks * chunks_per_rank; }
  int stage_at(int rank, int chunk) const;  // the inverse of places
  int index(int stage, int microbatch) const { return stage * microbatches + microbatch; }
};

// places of stage k on rank k mod ranks, chunk k / ranks (interleaved; one chunk: stage = rank).
std::vector<StagePlacement> round_robin_places(int ranks, int chunks);
// places of zb_v: rank r holds stages r (chunk 0) and 2 ranks - 1 - r (chunk 1).
std::vector<StagePlacement> v_places(int ranks);

}  // namespace forge
