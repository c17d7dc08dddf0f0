#pragma once

#include "config/deck.hpp"
#include "config/optimizer_name.hpp"
#include "optim/update.hpp"

namespace forge {

// An optimizer that treats each element for itself: what it keeps (`standard`: the type where the deck doesn't name
// another), and its update of a run of elements.
template <class T>
struct Rule {
  OptimizerState (*state)(const OptimizerDeck& deck, DType standard);
  void (*update)(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run);
};

// Each is defined, with its formula and source, in the file of its name.
template <class T>
Rule<T> adamw();

template <class T>
Rule<T> rule_of(OptimizerName name) {
  switch (name) {
    case OptimizerName::adamw:
      return adamw<T>();
  }
  throw Error("an optimizer of the deck is not in the table of optimizers");
}

}  // namespace forge
