#pragma once

#include <vector>

#include "schedule/schedule.hpp"

namespace forge {

// How long a tensor of (chunk, microbatch) lives on its rank: from the action that begins to write it to its last
// reader, both included.
enum class Lifetime {
  saved_for_input,     // saved by F, last read by B
  saved_for_weight,    // saved by F, last read by W
  rebuilt_for_input,   // written by recompute, last read by B
  rebuilt_for_weight,  // written by recompute, last read by W
  input,               // the chunk's input: from the post of its receive (hand-over, F on the first stage) to W
  output,              // the chunk's output: from F to the end of its send (hand-over; F only on the last stage)
  output_gradient,     // from the post of its receive (hand-over, B on the last stage) to W
  input_gradient,      // from B to the end of its send (hand-over; B only on the first stage)
  weight_inputs,       // written by B, last read by W, where they are separate actions
};

// Which slot holds which microbatch. The executor and the memory planner share it.
struct SlotTable {
  int microbatches = 0;
  std::vector<int> counts;  // slots by chunk; one entry for all chunks where they share
  std::vector<int> slots;   // by chunk * microbatches + microbatch; -1: the tensor never exists on this rank

  int at(int chunk, int microbatch) const { return slots[static_cast<std::size_t>(chunk * microbatches + microbatch)]; }
  int total() const;  // sum of counts
};

// The slots of one rank of a lowered schedule: as few as the lifetimes allow, the lowest free one first. With `shared`
// the rank's chunks draw from one pool (their tensors must then have one size). Every tensor in a slot has ended before
// the next one begins, in the order of the rank's list. Lifetimes of recompute are empty in schedules without it.
SlotTable assign_slots(const Schedule& schedule, int rank, Lifetime lifetime, bool shared = false);

// Microbatches, summed over the rank's chunks, that stand between F and W (or B) at the same time, at most.
int microbatches_in_flight(const Schedule& schedule, int rank, bool until_weight = true);

}  // namespace forge
