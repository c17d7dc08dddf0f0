#include "layout/matrix_state.hpp"

#include "config/optimizer_table.hpp"

namespace forge {

std::int64_t elements_of(StateShape shape, std::int64_t rows, std::int64_t columns) {
  switch (shape) {
    case StateShape::whole:
      return rows * columns;
    case StateShape::rows:
      return rows;
    case StateShape::columns:
      return columns;
    case StateShape::square_of_rows:
      return rows * rows;
    case StateShape::square_of_columns:
      return columns * columns;
  }
  return 0;
}

namespace {

bool is_kept(StateShape shape, const OptimizerDeck& deck, std::int64_t rows, std::int64_t columns) {
  if (shape == StateShape::square_of_rows) return rows <= deck.soap_largest_side;
  if (shape == StateShape::square_of_columns) return columns <= deck.soap_largest_side;
  return true;
}

}  // namespace

MatrixState matrix_state(const OptimizerDeck& deck, std::int64_t rows, std::int64_t columns) {
  MatrixState state{rows, columns, {}, 0};
  std::int64_t grain = 1;
  for (const StateSpec& spec : row_of(deck.name).states) {
    if (spec.owner != StateOwner::matrix_owner) continue;
    // Matrices begin at multiples of so many elements, which products may ask for.
    if (!spec.is_line()) grain = 64;
    state.parts.push_back(
        {&spec, 0, is_kept(spec.shape, deck, rows, columns) ? elements_of(spec.shape, rows, columns) : 0});
  }
  for (MatrixState::Part& part : state.parts) {
    part.at = state.elements;
    state.elements += (part.elements + grain - 1) / grain * grain;
  }
  return state;
}

}  // namespace forge
