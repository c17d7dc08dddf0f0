#include "optim/matrix_parts.hpp"

#include "device/parallel.hpp"
#include "kernels/rows/assign.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

namespace {

// f(element of the matrix, element of the part), by rows of the piece.
template <class F>
void each_of(Stream& stream, const MatrixPlace& p, F f) {
  if (p.count == 0) return;
  const std::int64_t begin = p.first / p.width, end = (p.first + p.count - 1) / p.width + 1;
  parallel_rows(stream, end - begin, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const std::int64_t start = (begin + r) * p.width;  // of this row, in the piece
    const std::int64_t from = start < p.first ? p.first : start;
    const std::int64_t last = p.first + p.count, to = start + p.width < last ? start + p.width : last;
    const std::int64_t at = (p.row + begin + r) * p.columns + p.column + from - start;
    team.each(to - from, [=](std::int64_t j) { f(at + j, from - p.first + j); });
  });
}

}  // namespace

template <class T>
void put_part(Stream& stream, const MatrixPlace& place, View<const T, 1> part, View<T, 1> matrix) {
  const T* const from = part.data;
  T* const to = matrix.data;
  each_of(stream, place, [=] FORGE_LAMBDA(std::int64_t i, std::int64_t j) { assign(to[i], from[j]); });
}

template <class T>
void take_part(Stream& stream, const MatrixPlace& place, View<const T, 1> matrix, View<T, 1> part) {
  const T* const from = matrix.data;
  T* const to = part.data;
  each_of(stream, place, [=] FORGE_LAMBDA(std::int64_t i, std::int64_t j) { assign(to[j], from[i]); });
}

template <class T>
void normalise_matrices(Stream& stream, View<T, 3> x, View<double, 1> row_squares, View<double, 1> norms) {
  using A = acc_t<T>;
  const std::int64_t rows = x.extent(1), columns = x.extent(2);
  T* const data = x.data;
  parallel_rows(stream, x.extent(0) * rows, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const T* row = data + r * columns;
    const double sum =
        team.template sum<double>(columns, [=](std::int64_t j) { return double(A(row[j])) * double(A(row[j])); });
    if (team.leads()) row_squares[r] = sum;
  });
  parallel_rows(stream, x.extent(0), [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    const double* squares = row_squares.data + b * rows;
    const double norm = math::sqrt(team.template sum<double>(rows, [=](std::int64_t r) { return squares[r]; }));
    if (team.leads()) norms[b] = norm > 1e-7 ? norm : 1e-7;
  });
  parallel_rows(stream, x.extent(0) * rows, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    T* row = data + r * columns;
    const A norm = A(norms[r / rows]);
    team.each(columns, [=](std::int64_t j) { row[j] = T(A(row[j]) / norm); });
  });
}

FORGE_INSTANTIATE_FUNCTION(put_part);
FORGE_INSTANTIATE_FUNCTION(take_part);
FORGE_INSTANTIATE_FUNCTION(normalise_matrices);

}  // namespace forge
