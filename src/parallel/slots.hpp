#pragma once

#include <vector>

#include "device/arena.hpp"
#include "layout/stage_buffers.hpp"
#include "nn/buffer_set.hpp"
#include "plan/slots.hpp"

namespace forge {

// What the microbatches in flight keep on a rank, by chunk: allocated for the whole run, as many slots of each region
// as lifetimes overlap. plan/memory.cpp adds up the same lists.
class ActivationSlots {
 public:
  ActivationSlots(Arena& arena, const BufferContext& context, const RankShare& share, const SlotTables& tables,
                  bool training);

  // What layer l of the chunk's list keeps from forward on, and what its B leaves for W.
  const BufferSet& saved(int chunk, int m, std::size_t l) const { return part(Region::saved, chunk, m, l); }
  const BufferSet& left(int chunk, int m, std::size_t l) const { return part(Region::left, chunk, m, l); }
  // The microbatch's rows as a normalised state sees them; 0: the model's own.
  BufferSet batch(int chunk, int m, int state) const;
  // The states (S, C) on an edge of the chunk, one behind the other; and the j-th of them.
  template <class T>
  View<T, 2> edge(Region region, int chunk, int m) const {
    return part(region, chunk, m, 0).template matrix<T>(Buf::x);
  }
  template <class T>
  View<T, 2> edge(Region region, int chunk, int m, int j) const {
    return edge<T>(region, chunk, m).slice(j * rows_, (j + 1) * rows_);
  }

 private:
  using Slot = std::vector<BufferSet>;  // by part
  const BufferSet& part(Region region, int chunk, int m, std::size_t part) const;

  SlotTables tables_;
  std::int64_t rows_;                                                 // S
  std::vector<std::size_t> layers_;                                   // of each chunk
  std::array<std::vector<std::vector<Slot>>, region_count> regions_;  // by chunk, slot
};

}  // namespace forge
