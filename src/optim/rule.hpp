#pragma once

#include "config/deck.hpp"
#include "config/optimizer_table.hpp"
#include "optim/update.hpp"

namespace forge {

// Updates of optimizers that treat each element for itself. Each is defined, with its formula and source, in the file
// of its name.
template <class T>
void adamw(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run);

// That of the deck.
template <class T>
void update_run(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateRun<T>& run) {
  switch (deck.name) {
    case OptimizerName::adamw:
      return adamw(stream, deck, step, run);
  }
}

}  // namespace forge
