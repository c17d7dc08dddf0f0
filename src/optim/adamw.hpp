#pragma once

#include <vector>

#include "config/deck.hpp"
#include "kernels/kernels.hpp"
#include "parallel/storage.hpp"

namespace forge {

// AdamW over the flat buffers of a rank: one fused kernel per run of elements with the same decay.
template <class T>
class Adamw {
 public:
  Adamw(const ParameterStorage<T>& storage, const OptimizerDeck& deck);

  // Update number `update` (from 1, skipped steps not counted) with this rate; nothing changes unless scalars.finite.
  void step(Stream& stream, std::int64_t update, double rate, View<const StepScalars, 1> scalars) const;

 private:
  struct Segment {
    std::size_t unit;
    std::int64_t begin, end;  // in the unit's state
    bool decays;
  };
  template <class M>
  void step_segment(Stream& stream, const Segment& segment, AdamwStep how, View<const StepScalars, 1> scalars) const;

  const ParameterStorage<T>& storage_;
  OptimizerDeck deck_;
  std::vector<Segment> segments_;
};

}  // namespace forge
