#pragma once

#include <string>
#include <vector>

#include "layout/stage_buffers.hpp"
#include "plan/rank_share.hpp"

namespace forge {

// A rank's work, one task after the other: a step of the schedule with its layers and units. The executor replays the
// list; memory, slots and traffic are sums over it.
enum class TaskOp : std::uint8_t {
  load_batch,  // of a microbatch: takes its slots
  retire,      // W has read all of them: frees them
  forward,     // of a layer, like the next four
  recompute,   // activations that the policy did not save
  backward_input,
  backward_weight,
  backward,  // of a block with tp: the last two at once
  open,      // a frame of the workspace, for buffers of a layer or of all layers of a pass (Task::frame)
  close,     // the frame of these that was opened last
  // A forward pass and a backward pass of another microbatch, whose tasks stand between these two, one pass behind the
  // other: they run at once, each a track that goes on while a collective of the other one is under way.
  begin_pair,
  end_pair,
  // Parameters of a unit that ZeRO shards.
  gather,           // in the stream of parameters
  wait_parameters,  // the compute stream waits for the gather
  release,          // its buffer may be taken by another unit
  // Gradients of a unit.
  clear_gradients,   // of a buffer that units share, before a microbatch adds to it
  reduce_gradients,  // in the stream of gradients: over the ranks that share the unit
  // Edges of a stage.
  transfer,    // as its action says, in the stream of transfers
  local_copy,  // to the next or previous stage, on the same rank
  // Around the passes. Tasks behind `update` run where training goes on.
  clear_sums,      // gradients and losses of the step
  reduce_tied,     // of a token table on two stages, in the stream of gradients
  wait_gradients,  // the compute stream waits for all reductions
  norm,            // the rank's part of the squared norm
  clip,            // losses, norm and routers' sums over all ranks; coefficient, and whether all is finite
  update,          // the optimizer, on the rank's part of each unit, but for matrices that it updates whole
  read,            // losses and norm come to the host
  update_biases,   // of routers, where the step was finite
  // Matrices that are updated whole, in rounds (layout/whole_matrices.hpp).
  gather_matrices,   // the update's input from the rank's parts; in the stream of matrices to the owners
  compute_matrices,  // behind that, the owner's work
  return_matrices,   // in the stream of matrices: the result's parts to the ranks that hold them
  update_matrices,   // then the update of the rank's parts
  update_factored,   // of a unit whose second moments are of rows and columns, with the sums over its ranks
  clip_heads,        // QK-clip, on the rank's part of each unit
  unit_norms,        // of weights and their updates, over all ranks, in steps that report them
  weight_amaxes,     // largest magnitudes of weights that products round, over the ranks that share them
};
std::string_view name_of(TaskOp op);

struct Task {
  TaskOp op;
  Action action;               // of the schedule: its chunk and microbatch are the task's
  int layer = -1;              // in the chunk's list of layers
  std::size_t unit = no_unit;  // of the rank's
  int buffer = -1;  // in the pool of units that take turns, −1: its own; of a local copy the chunk that it writes to
  bool last = false;              // of reduce_gradients: nothing is added any more in the step
  Regions reads = 0, writes = 0;  // of chunk and microbatch; a local copy writes to its target's
  int round = -1;                 // of matrices
  LayerMemory frame{};            // of open and close
  int track = -1;                 // of a pair: 0 forward, 1 backward; −1: in none

  // Whether it belongs to the step, not to an action of the schedule.
  bool of_step() const { return op >= TaskOp::clear_sums; }
  // B directly followed by W, layer by layer: B's buffers for W stand in frames, else in slots.
  bool fused() const { return action.op == Op::backward; }
};

// A rank's tasks for the gradients of a step of a lowered schedule, up to the clip coefficient. Within a pass a unit is
// gathered while the layer before computes, and the first unit of a chunk's pass while another chunk's pass is under
// way. Where microbatches are reduced or rounded one by one (Zero::adds_in_buffers), matrices take turns in buffers of
// a pool.
std::vector<Task> step_tasks(const RankShare& share, const Schedule& schedule, Recompute recompute);

// A rank's tasks for the update with the gradients. The scalars are read first: the host then reports, and prepares the
// next step, behind the update. While one round of matrices is computed, the next is gathered and the one before goes
// back.
std::vector<Task> update_tasks(const RankShare& share, bool router_biases);
// The optimizer's own tasks among these, up to the new weights of the rank's parts.
std::vector<Task> optimizer_tasks(const RankShare& share);
// Gathers of all sharded units that have a buffer of their own: for an update, or for an evaluation under ZeRO 3.
std::vector<Task> gather_tasks(const RankShare& share);

// Losses of one microbatch, of the model alone, without gradients; behind gather_tasks.
std::vector<Task> evaluation_tasks(const RankShare& share, const Schedule& schedule);

// The layer of a layer's task.
const StageLayer& layer_of(const Task& task, const RankShare& share);
// The pass of a layer's task; null layer: another task. `recompute`: it makes dropped activations anew.
struct LayerPass {
  const StageLayer* layer = nullptr;
  Pass pass{};
  bool recompute = false;
};
LayerPass pass_of(const Task& task, const RankShare& share);

// The stream that a task gives its work to: of compute, parameters, gradients, transfers and matrices; "": it has none.
// Exchanges within a layer, and behind it, are part of its task.
std::string_view stream_of(const Task& task);

// A task's subject: "block with experts", or a unit's kind; "" of others.
std::string subject_of(const Task& task, const RankShare& share, const ModelSpec& whole);
// "forward of a block": where memory is at its fullest.
std::string phase_of(const Task& task, const RankShare& share);

}  // namespace forge
