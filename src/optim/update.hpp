#pragma once

#include "kernels/kernels.hpp"
#include "model/optimizer_state.hpp"

namespace forge {

// An update: its number (from 1, steps that were skipped don't count), its learning rate, and what the update needs to
// know of the step; it must change nothing unless scalars.finite.
struct UpdateStep {
  std::int64_t number;
  double rate;
  View<const StepScalars, 1> scalars;
};

// Elements that a rank updates, one behind the other and with the same decay, and all that is kept of them.
template <class T>
struct UpdateRun {
  using A = acc_t<T>;
  View<const A, 1> gradient;
  View<A, 1> master;
  View<T, 1> copy;  // of the master weights in the compute type; empty where the types agree
  struct State {
    DType type;
    void* data;
  };
  ShortList<State, 4> state;  // what the optimizer has declared, in that order
  bool decays;

  template <class M>
  View<M, 1> state_of(std::size_t i) const {
    return {static_cast<M*>(state[i].data), {{master.size()}}};
  }
};

}  // namespace forge
