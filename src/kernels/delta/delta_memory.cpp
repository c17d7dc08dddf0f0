#include "device/parallel.hpp"
#include "kernels/delta/delta_places.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

namespace {

FORGE_INLINE bool text_begins(const DeltaRows& rows, const DeltaShape& shape, std::int64_t sequence) {
  const std::int64_t first = sequence * shape.tokens;
  return is_token(rows, first) && rows.positions[first] == 0;
}

FORGE_INLINE std::int64_t tokens_of_piece(const DeltaRows& rows, const DeltaShape& shape, std::int64_t sequence) {
  std::int64_t n = 0;
  while (n < shape.tokens && is_token(rows, sequence * shape.tokens + n)) ++n;
  return n;
}

// Rows of a view that belong to sequences, as many to each, are 0 where a text begins.
template <class P>
void clear_begun(Stream& stream, const DeltaShape& shape, const DeltaRows& rows, const View<P, 2>& x) {
  if (x.rows() == 0) return;
  const std::int64_t n = x.columns(), of_sequence = x.rows() / shape.sequences;
  parallel_rows(stream, x.rows(), row_width<P>(n), [=] FORGE_LAMBDA(std::int64_t row, Team team) {
    if (!text_begins(rows, shape, quotient(row, of_sequence))) return;
    P* const to = x.row(row);
    team.each(n, [=](std::int64_t c) { to[c] = P(0.f); });
  });
}

}  // namespace

template <class T>
void delta_begin(Stream& stream, const DeltaShape& shape, const DeltaRows& rows, const DeltaMemory<T>& memory) {
  note_rows(stream, "delta_begin", 0, bytes_in(memory.state, memory.tail));
  clear_begun(stream, shape, rows, memory.state);
  clear_begun(stream, shape, rows, memory.tail);
}

template <class T>
void delta_conv_next(Stream& stream, const DeltaShape& shape, const DeltaRows& rows, View<const T, 2> x,
                     View<const T, 1> w, View<T, 2> tail, View<T, 2> y) {
  note_rows(stream, "delta_conv_next", bytes_in(x, tail), bytes_in(y, tail));
  using A = acc_t<T>;
  const std::int64_t channels = x.columns(), taps = w.rows() / channels, before = taps - 1;
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const std::int64_t sequence = quotient(r, shape.tokens), t = r - sequence * shape.tokens;
    T* const out = y.row(r);
    team.each(channels, [=](std::int64_t c) {
      A sum = 0;
      for (std::int64_t j = 0; j < taps; ++j) {
        const T in = j <= t ? x.row(r - j)[c] : tail.row(sequence * before + before + t - j)[c];
        sum += A(w[c * taps + before - j]) * A(in);
      }
      out[c] = T(sum * math::sigmoid(sum));
    });
  });
  if (before == 0) return;
  parallel_rows(stream, shape.sequences, [=] FORGE_LAMBDA(std::int64_t sequence, Team team) {
    const std::int64_t count = tokens_of_piece(rows, shape, sequence);
    team.each(channels, [=](std::int64_t c) {
      for (std::int64_t i = 0; i < before; ++i) {
        const std::int64_t from = i + count;  // of the tail's rows and, behind them, the tokens'
        tail.row(sequence * before + i)[c] =
            from < before ? tail.row(sequence * before + from)[c] : x.row(sequence * shape.tokens + from - before)[c];
      }
    });
  });
}

FORGE_INSTANTIATE_FUNCTION(delta_begin);
FORGE_INSTANTIATE_FUNCTION(delta_conv_next);

}  // namespace forge
