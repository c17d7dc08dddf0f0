#pragma once

#include <vector>

#include "core/to_size.hpp"
#include "device/arena.hpp"
#include "layout/stage_buffers.hpp"
#include "plan/slots.hpp"

namespace forge {

// What the microbatches in flight keep on a rank, by chunk: allocated for the whole run, as many slots of each region
// as lifetimes overlap. Layers place their structs there (layout/stage_buffers.hpp); plan/memory.cpp adds up the same
// bytes.
class ActivationSlots {
 public:
  ActivationSlots(Arena& arena, const BufferContext& context, const RankShare& share, const SlotTables& tables,
                  bool training);

  // Memory of what layer l of the chunk's list keeps from forward on, and of what its B leaves for W.
  void* saved(int chunk, int m, std::size_t l) const { return part(Region::saved, chunk, m, l); }
  void* left(int chunk, int m, std::size_t l) const { return part(Region::left, chunk, m, l); }
  // The microbatch's rows as a normalised state sees them; 0: the model's own.
  Batch batch(int chunk, int m, int state) const;
  // The states (S, C) on an edge of the chunk, one behind the other; and the j-th of them.
  template <class T>
  View<T, 2> edge(Region region, int chunk, int m) const {
    const StageContent& stage = share_.chunks[to_size(chunk)];
    return edge_of<T>(region, chunk, m, 0, training_ ? states_on(region, stage) : 1);
  }
  template <class T>
  View<T, 2> edge(Region region, int chunk, int m, int j) const {
    return edge_of<T>(region, chunk, m, j, 1);
  }

 private:
  using Slot = std::vector<void*>;  // by part
  void* part(Region region, int chunk, int m, std::size_t part) const;
  template <class T>
  View<T, 2> edge_of(Region region, int chunk, int m, std::int64_t first, std::int64_t states) const {
    const std::int64_t rows = context_.stream_rows(), C = context_.spec.C();
    return View<T, 2>(static_cast<T*>(part(region, chunk, m, 0)) + first * rows * C, {{states * rows, C}});
  }

  const BufferContext& context_;
  const RankShare& share_;
  bool training_;
  SlotTables tables_;
  std::array<std::vector<std::vector<Slot>>, region_count> regions_;  // by chunk, slot
};

}  // namespace forge
