#pragma once

#include <span>
#include <vector>

#include "core/to_size.hpp"
#include "device/arena.hpp"
#include "layout/stage_buffers.hpp"
#include "plan/slots.hpp"

namespace forge {

// The memory of the microbatches in flight on a rank, by chunk: allocated for the whole run, as many slots of each
// region as lifetimes overlap. Layers place their structs there (layout/stage_buffers.hpp); plan/memory.cpp adds up the
// same bytes.
class ActivationSlots {
 public:
  // `lists`: the tables of lists of tasks that take turns, with the same counts (run_tasks).
  ActivationSlots(Arena& arena, const BufferContext& context, const RankShare& share, std::vector<SlotTables> lists,
                  bool training);
  // Microbatches belong to another list from here on.
  void use(std::size_t list) { now_ = list; }

  // Memory of a part of a region (slot_parts), for layer l of the chunk's list.
  void* part(Region region, int chunk, int m, std::size_t part) const;
  // The microbatch's rows as a normalised state sees them; 0: the model's own.
  Batch batch(int chunk, int m, int state) const;
  // States (S, C) on an edge of the chunk from the first-th on, one behind the other.
  template <class T>
  View<T, 2> edge(Region region, int chunk, int m, int first, int states) const {
    const std::int64_t rows = context_.stream_rows(), C = context_.spec.C();
    return View<T, 2>(static_cast<T*>(part(region, chunk, m, 0)) + first * rows * C, {{states * rows, C}});
  }
  // All slots of an edge that another stage's rank gives: input or output_gradient, of training.
  std::vector<std::span<std::byte>> received(Region edge) const;

 private:
  using Slot = std::vector<void*>;  // by part

  const BufferContext& context_;
  const RankShare& share_;
  std::vector<SlotTables> lists_;
  std::size_t now_ = 0;
  std::array<std::vector<std::vector<Slot>>, region_count> regions_;  // by chunk, slot
};

}  // namespace forge
