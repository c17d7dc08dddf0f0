#pragma once

#include <vector>

#include "config/deck.hpp"
#include "optim/update.hpp"
#include "parallel/storage.hpp"

namespace forge {

// The deck's optimizer over the flat buffers of a rank.
template <class T>
class Optimizer {
 public:
  Optimizer(const ParameterStorage<T>& storage, const OptimizerDeck& deck);

  // Update number `update` (from 1, skipped steps not counted) with this rate; nothing changes unless scalars.finite.
  void step(Stream& stream, std::int64_t update, double rate, View<const StepScalars, 1> scalars) const;

 private:
  OptimizerDeck deck_;
  std::vector<UpdateRun<T>> runs_;
};

}  // namespace forge
