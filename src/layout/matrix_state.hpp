#pragma once

#include <cstdint>

#include "config/deck.hpp"
#include "config/state_spec.hpp"
#include "core/short_list.hpp"

namespace forge {

// The states of a matrix (m, n) at its owner: the states of the optimizer's list that are matrix owners', in its order,
// one behind the other.
struct MatrixState {
  struct Part {
    const StateSpec* spec = nullptr;
    std::int64_t at = 0, elements = 0;  // none of a square that is not kept
  };
  std::int64_t rows = 0, columns = 0;
  ShortList<Part, most_states> parts;
  std::int64_t elements = 0;
};
MatrixState matrix_state(const OptimizerDeck& deck, std::int64_t rows, std::int64_t columns);

// The numbers of a state of a matrix.
std::int64_t elements_of(StateShape shape, std::int64_t rows, std::int64_t columns);

}  // namespace forge
