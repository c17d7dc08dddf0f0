#pragma once

#include "kernels/kernels.hpp"
#include "model/optimizer_state.hpp"
#include "model/update_rule.hpp"
#include "optim/learning_rate.hpp"
#include "parallel/element_place.hpp"
#include "parallel/storage.hpp"

namespace forge {

// An update of one rate: its number (from 1, steps that were skipped don't count), its learning rate, and the step's
// scalars; it must change nothing unless scalars.finite. leaves: afterwards its change of each weight stands in the
// place of the gradient.
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
struct UpdateArgs {
  using A = acc_t<T>;
  View<A, 1> gradient;  // empty: it is in the compute type, `narrow_gradient`
  View<A, 1> master;    // empty: they are in the compute type, `copy`
  View<T, 1> copy;      // of the master weights in the compute type; empty where the types agree
  struct State {
    DType type;
    void* data;
  };
  ShortList<State, 4> state;  // the optimizer's states of these elements, in its order
  UpdateRule rule;
  ElementPlace place = {};  // where anything is rounded: of a part of one tensor
  View<T, 1> narrow_gradient = {};

  std::int64_t size() const { return gradient.empty() ? narrow_gradient.size() : gradient.size(); }
  template <class M>
  View<M, 1> state_of(std::size_t i) const {
    return {static_cast<M*>(state[i].data), {{size()}}};
  }
  // The gradient, of type G.
  template <class G>
  G* gradients() const {
    if constexpr (std::is_same_v<G, A>)
      return gradient.data;
    else
      return narrow_gradient.data;
  }
  // The master weights, of type W.
  template <class W>
  W* weights() const {
    if constexpr (std::is_same_v<W, A>)
      return master.data;
    else
      return copy.data;
  }
};

// Whether an update rounds states or weights of a unit: each tensor then has runs of its own.
template <class T>
bool rounds_state(const RankUnit<T>& unit) {
  if (unit.master_is_copy) return true;
  for (const auto& buffer : unit.optimizer)
    if (buffer.declared.type == DType::bf16) return true;
  return false;
}

// Elements of a unit that this rank updates: `elements` of its flat buffer, and where rounds_state() of one piece.
template <class T>
UpdateArgs<T> run_of(const RankUnit<T>& unit, const Range& elements, const UpdateRule& rule, std::uint64_t seed) {
  const std::int64_t begin = elements.begin - unit.state.begin, end = elements.end - unit.state.begin;
  UpdateArgs<T> run{{}, {}, {}, {}, rule};
  if (unit.rounds_gradients())
    run.narrow_gradient = unit.narrow_gradient.slice(begin, end);
  else
    run.gradient = unit.gradient.slice(begin, end);
  if (!unit.master_is_copy) run.master = unit.master.slice(begin, end);
  if constexpr (!std::is_same_v<acc_t<T>, T>) run.copy = unit.copy.slice(begin, end);
  if (rounds_state(unit)) run.place = place_of(unit.local, elements.begin, seed);
  for (const auto& buffer : unit.optimizer)
    if (std::byte* const state = buffer.at(elements.begin)) run.state.push_back({buffer.declared.type, state});
  return run;
}

}  // namespace forge
