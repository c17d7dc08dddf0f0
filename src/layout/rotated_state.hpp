#pragma once

#include <algorithm>

#include "layout/matrix_state.hpp"
#include "model/buffers.hpp"

namespace forge {

// The states of a matrix (m, n) at its owner with SOAP (Vyas et al. 2024, arXiv 2409.11321), by their place among the
// owner's states (config/optimizer_table.hpp): the first moment, the second moment in the bases, and of rows and of
// columns the covariance of gradients with its basis, whose rows are the basis' vectors.
struct RotatedState {
  explicit RotatedState(const MatrixState& state)
      : rows(state.rows),
        columns(state.columns),
        rotates_rows(state.parts[2].elements > 0),
        rotates_columns(state.parts[4].elements > 0),
        state_(state) {}

  std::int64_t rows, columns;
  bool rotates_rows, rotates_columns;

  std::int64_t first_moment() const { return state_.parts[0].at; }
  std::int64_t second_moment() const { return state_.parts[1].at; }
  std::int64_t covariance_of_rows() const { return state_.parts[2].at; }
  std::int64_t basis_of_rows() const { return state_.parts[3].at; }
  std::int64_t covariance_of_columns() const { return state_.parts[4].at; }
  std::int64_t basis_of_columns() const { return state_.parts[5].at; }
  // The longest side that is rotated; 0: none.
  std::int64_t longest() const { return std::max(rotates_rows ? rows : 0, rotates_columns ? columns : 0); }

 private:
  MatrixState state_;
};

// The most elements of a matrix, and the longest side.
struct RotationSizes {
  std::int64_t elements = 0, side = 0;
};

// Memory of an update: three matrices (m, n), two squares of the longest side, the reflections of a side
// and a number behind them.
template <class A>
struct RotationBuffers {
  View<A, 1> gradient, partial, rotated;
  View<A, 1> square, basis;
  View<double, 1> reflections;

  void list(BufferLister& l, const RotationSizes& most) {
    l.add(gradient, "gradient of a matrix", most.elements, 1);
    l.add(partial, "matrix rotated on one side", most.elements, 1);
    l.add(rotated, "rotated matrix", most.elements, 1);
    l.add(square, "product of a side", most.side * most.side, 1);
    l.add(basis, "next basis", most.side * most.side, 1);
    l.add(reflections, "reflections", 2 * most.side + 1, 1);
  }
};

}  // namespace forge
