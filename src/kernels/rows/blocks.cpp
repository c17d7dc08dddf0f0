#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows/assign.hpp"

namespace forge {

namespace {

struct Places {
  std::int64_t of_block, of_group;  // in a block; that hold the same group
};
Places places_of(std::int64_t columns, std::int64_t rows, std::int64_t blocks, std::int64_t width,
                 std::int64_t block_columns, std::int64_t block_rows) {
  require(blocks > 0 && width > 0 && block_rows == blocks * rows && columns > 0 && columns % width == 0 &&
              block_columns % width == 0,
          "blocks of columns: shapes differ");
  const std::int64_t places = block_columns / width, groups = columns / width;
  require(blocks * places % groups == 0, "blocks of columns: the groups don't divide the places");
  return {places, blocks * places / groups};
}

}  // namespace

template <class T>
void columns_to_blocks(Stream& stream, View<const T, 2> from, std::int64_t blocks, std::int64_t width, View<T, 2> to) {
  note_rows(stream, "columns_to_blocks", bytes_in(from), bytes_in(to));
  const std::int64_t rows = from.rows();
  const Places n = places_of(from.columns(), rows, blocks, width, to.columns(), to.rows());
  const auto body = [=] FORGE_LAMBDA(std::int64_t row, std::int64_t i, Team team) {
    const std::int64_t block = quotient(row, rows), group = quotient(block * n.of_block + i, n.of_group);
    const T* in = from.row(row - block * rows) + group * width;
    team.map(
        width, [=](const T& in_j, T& out) { assign(out, in_j); }, in, to.row(row) + i * width);
  };
  parallel_rows(stream, blocks * rows, n.of_block, row_width<T>(width), body);
}

template <class T>
void blocks_to_columns(Stream& stream, View<const T, 2> from, std::int64_t blocks, std::int64_t width, View<T, 2> to) {
  note_rows(stream, "blocks_to_columns", bytes_in(from), bytes_in(to));
  using A = acc_t<T>;
  const std::int64_t rows = to.rows(), groups = to.columns() / width;
  const Places n = places_of(to.columns(), rows, blocks, width, from.columns(), from.rows());
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t g, Team team) {
    const auto place = [=](std::int64_t i) {
      const std::int64_t block = quotient(i, n.of_block);
      return static_cast<const T*>(from.row(block * rows + r) + (i - block * n.of_block) * width);
    };
    const std::int64_t first = g * n.of_group;
    T* out = to.row(r) + g * width;
    if (n.of_group == 1)
      return team.map(
          width, [=](const T& in, T& out_j) { out_j = T(A(in)); }, place(first), out);
    team.each(width, [=](std::int64_t j) {
      A sum = A(place(first)[j]);
      for (std::int64_t i = 1; i < n.of_group; ++i) sum += A(place(first + i)[j]);
      out[j] = T(sum);
    });
  };
  parallel_rows(stream, rows, groups, row_width<T>(width), body);
}

template <class T>
void transpose_blocks(Stream& stream, std::int64_t outer, std::int64_t inner, View<const T, 2> from, View<T, 2> to) {
  note_rows(stream, "transpose_blocks", bytes_in(from), bytes_in(to));
  const std::int64_t width = from.columns();
  require(
      outer > 0 && inner > 0 && from.rows() % (outer * inner) == 0 && to.rows() == from.rows() && to.columns() == width,
      "transpose_blocks: shapes differ");
  const std::int64_t rows = from.rows() / (outer * inner);
  parallel_rows(stream, from.rows(), row_width<T>(width), [=] FORGE_LAMBDA(std::int64_t row, Team team) {
    const std::int64_t block = quotient(row, rows), i = quotient(block, inner), j = block - i * inner;
    T* out = to.row((j * outer + i) * rows + row - block * rows);
    team.map(
        width, [=](const T& in, T& out_c) { assign(out_c, in); }, from.row(row), out);
  });
}

FORGE_INSTANTIATE_FUNCTION(columns_to_blocks);
FORGE_INSTANTIATE_FUNCTION(blocks_to_columns);
FORGE_INSTANTIATE_FUNCTION(transpose_blocks);

}  // namespace forge
