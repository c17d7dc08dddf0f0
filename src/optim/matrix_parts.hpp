#pragma once

#include "device/stream.hpp"
#include "kernels/kernels.hpp"

namespace forge {

// A part of a matrix (rows, columns): `count` elements from `first` on of a piece of `width` columns, row-major, whose
// first one is (row, column) of the matrix.
struct MatrixPlace {
  std::int64_t columns = 0, row = 0, column = 0, width = 0, first = 0, count = 0;
};

// matrix ← part, at its place; part ← the matrix's elements there.
template <class T>
void put_part(Stream& stream, const MatrixPlace& place, View<const T, 1> part, View<T, 1> matrix);
template <class T>
void take_part(Stream& stream, const MatrixPlace& place, View<const T, 1> matrix, View<T, 1> part);

// x ← x / max(‖x‖, 1e-7) of each matrix of a stack, with sums in double. Memory: of rows, of matrices.
template <class T>
void normalise_matrices(Stream& stream, View<T, 3> x, View<double, 1> row_squares, View<double, 1> norms);

}  // namespace forge
