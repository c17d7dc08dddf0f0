#include "kernels/rows/order_rows.hpp"

#include "core/error.hpp"
#include "core/types.hpp"
#include "device/parallel.hpp"
#include "kernels/rows/assign.hpp"

namespace forge {

namespace {

struct ZigzagRows {
  std::int64_t ranks, sequences, chunk;  // tokens of a chunk

  // Where the token of row `row` of (sequences, T) stands among the ranks' rows.
  FORGE_INLINE std::int64_t of_rank(std::int64_t row) const {
    const std::int64_t place = quotient(row, chunk), in_chunk = row - place * chunk;
    const std::int64_t sequence = quotient(place, 2 * ranks), number = place - sequence * 2 * ranks;
    const bool second = number >= ranks;
    const std::int64_t rank = second ? 2 * ranks - 1 - number : number;
    return ((rank * sequences + sequence) * 2 + second) * chunk + in_chunk;
  }
};

template <class T>
ZigzagRows zigzag_rows(std::int64_t ranks, std::int64_t sequences, const View<const T, 2>& from, const View<T, 2>& to) {
  require(ranks > 0 && sequences > 0 && from.rows() % (2 * ranks * sequences) == 0 && to.rows() == from.rows() &&
              to.columns() == from.columns(),
          "rows of ranks: shapes differ");
  return {ranks, sequences, from.rows() / (2 * ranks * sequences)};
}

}  // namespace

template <class T>
void rows_by_position(Stream& stream, std::int64_t ranks, std::int64_t sequences, View<const T, 2> from,
                      View<T, 2> to) {
  note_rows(stream, "rows_by_position", bytes_in(from), bytes_in(to));
  const std::int64_t n = from.columns();
  const ZigzagRows rows = zigzag_rows(ranks, sequences, from, to);
  parallel_rows(stream, from.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t row, Team team) {
    team.map(
        n, [=](const T& in, T& out) { assign(out, in); }, from.row(rows.of_rank(row)), to.row(row));
  });
}

template <class T>
void rows_by_rank(Stream& stream, std::int64_t ranks, std::int64_t sequences, View<const T, 2> from, View<T, 2> to) {
  note_rows(stream, "rows_by_rank", bytes_in(from), bytes_in(to));
  const std::int64_t n = from.columns();
  const ZigzagRows rows = zigzag_rows(ranks, sequences, from, to);
  parallel_rows(stream, from.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t row, Team team) {
    team.map(
        n, [=](const T& in, T& out) { assign(out, in); }, from.row(row), to.row(rows.of_rank(row)));
  });
}

FORGE_INSTANTIATE_FUNCTION(rows_by_position);
FORGE_INSTANTIATE_FUNCTION(rows_by_rank);

}  // namespace forge
