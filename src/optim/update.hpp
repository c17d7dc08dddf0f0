#pragma once

#include "kernels/kernels.hpp"
#include "model/optimizer_state.hpp"
#include "model/update_rule.hpp"
#include "optim/learning_rate.hpp"
#include "parallel/storage.hpp"

namespace forge {

// An update of one rate: its number (from 1, steps that were skipped don't count), its learning rate, and what the
// update needs to know of the step; it must change nothing unless scalars.finite. leaves: what it has added to each
// weight stands in the place of the gradient afterwards.
struct UpdateStep {
  std::int64_t number;
  double rate;
  View<const StepScalars, 1> scalars;
  bool leaves = false;
};

// An update of the whole model.
struct Update {
  std::int64_t number;
  StepRates rates;
  View<const StepScalars, 1> scalars;
  bool leaves = false;

  UpdateStep of(const UpdateRule& rule) const { return {number, rates.of(rule.learning_rate), scalars, leaves}; }
};

// Elements that a rank updates, one behind the other and by one rule, and all that is kept of them.
template <class T>
struct UpdateRun {
  using A = acc_t<T>;
  View<A, 1> gradient;
  View<A, 1> master;
  View<T, 1> copy;  // of the master weights in the compute type; empty where the types agree
  struct State {
    DType type;
    void* data;
  };
  ShortList<State, 4> state;  // what the optimizer has declared for these elements, in that order
  UpdateRule rule;

  template <class M>
  View<M, 1> state_of(std::size_t i) const {
    return {static_cast<M*>(state[i].data), {{master.size()}}};
  }
};

// Elements of a unit that this rank updates: `elements` of its flat buffer.
template <class T>
UpdateRun<T> run_of(const RankUnit<T>& unit, const Range& elements, const UpdateRule& rule) {
  const std::int64_t begin = elements.begin - unit.state.begin, end = elements.end - unit.state.begin;
  UpdateRun<T> run{unit.gradient.slice(begin, end), unit.master.slice(begin, end), {}, {}, rule};
  if constexpr (!std::is_same_v<acc_t<T>, T>) run.copy = unit.copy.slice(begin, end);
  for (const auto& buffer : unit.optimizer)
    if (std::byte* const state = buffer.at(elements.begin)) run.state.push_back({buffer.declared.type, state});
  return run;
}

}  // namespace forge
