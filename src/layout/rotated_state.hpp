#pragma once

#include <algorithm>

#include "config/deck.hpp"
#include "model/buffers.hpp"

namespace forge {

// What the owner of a matrix (m, n) keeps of it with SOAP (Vyas et al. 2024, arXiv 2409.11321), one behind the other:
// the first moment, the second moment in the bases, and of rows and of columns the covariance of gradients with its
// basis, whose rows are the basis' vectors. A longer side than optimizer.soap_largest_side has neither.
struct RotatedState {
  std::int64_t rows = 0, columns = 0;
  bool rotates_rows = false, rotates_columns = false;

  std::int64_t first_moment() const { return 0; }
  std::int64_t second_moment() const { return place(rows * columns); }
  std::int64_t covariance_of_rows() const { return 2 * second_moment(); }
  std::int64_t basis_of_rows() const { return covariance_of_rows() + of_rows(); }
  std::int64_t covariance_of_columns() const { return covariance_of_rows() + 2 * of_rows(); }
  std::int64_t basis_of_columns() const { return covariance_of_columns() + of_columns(); }
  std::int64_t elements() const { return covariance_of_columns() + 2 * of_columns(); }
  // The longest side that is rotated; 0: none.
  std::int64_t longest() const { return std::max(rotates_rows ? rows : 0, rotates_columns ? columns : 0); }

 private:
  // Parts begin at multiples of so many elements, which products may ask for.
  static std::int64_t place(std::int64_t n) { return (n + 63) / 64 * 64; }
  std::int64_t of_rows() const { return rotates_rows ? place(rows * rows) : 0; }
  std::int64_t of_columns() const { return rotates_columns ? place(columns * columns) : 0; }
};
inline RotatedState rotated_state(const OptimizerDeck& deck, std::int64_t rows, std::int64_t columns) {
  return {rows, columns, rows <= deck.soap_largest_side, columns <= deck.soap_largest_side};
}

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
