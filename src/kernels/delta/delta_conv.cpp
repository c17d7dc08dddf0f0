#include "device/parallel.hpp"
#include "kernels/delta/delta_places.hpp"
#include "kernels/rows/column_sums.hpp"
#include "kernels/rows/math.hpp"

namespace forge {

namespace {

// How many tokens of the document stand up to token t of its sequence, at most `most`; likewise from it on.
FORGE_INLINE std::int64_t tokens_up_to(const DeltaDocuments& documents, std::int64_t t, std::int64_t most) {
  std::int64_t n = 1;
  while (n < most && n <= t && documents.same(t - n, t)) ++n;
  return n;
}
FORGE_INLINE std::int64_t tokens_from(const DeltaDocuments& documents, std::int64_t t, std::int64_t tokens,
                                      std::int64_t most) {
  std::int64_t n = 1;
  while (n < most && t + n < tokens && documents.same(t + n, t)) ++n;
  return n;
}

// Σ_j w_j x(r − j) of a channel, with `taps` numbers of which the first `there` meet a token.
template <class A, class T>
FORGE_INLINE A convolved(const T* x, std::int64_t pitch, const T* w, std::int64_t taps, std::int64_t there) {
  A sum = 0;
  for (std::int64_t j = 0; j < there; ++j) sum += A(w[taps - 1 - j]) * A(x[-j * pitch]);
  return sum;
}

}  // namespace

template <class T>
void delta_conv_forward(Stream& stream, const DeltaShape& shape, const Documents& documents, View<const T, 2> x,
                        View<const T, 1> w, View<T, 2> y) {
  note_rows(stream, "delta_conv_forward", bytes_in(x), bytes_in(y));
  using A = acc_t<T>;
  const std::int64_t channels = x.columns(), taps = w.rows() / channels;
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const std::int64_t sequence = quotient(r, shape.tokens), t = r - sequence * shape.tokens;
    const std::int64_t there = tokens_up_to({documents, shape, sequence}, t, taps);
    const T* const in = x.row(r);
    T* const out = y.row(r);
    team.each(channels, [=](std::int64_t c) {
      const A sum = convolved<A>(in + c, x.pitch, w.data + c * taps, taps, there);
      out[c] = T(sum * math::sigmoid(sum));
    });
  });
}

// silu'(s) = σ(s) (1 + s (1 − σ(s)));  dx(r) = Σ_j w_j ds(r + j);  dw_j = Σ_r ds(r) x(r − j)
template <class T>
void delta_conv_backward(Stream& stream, const DeltaShape& shape, const Documents& documents, View<const T, 2> x,
                         View<const T, 1> w, View<T, 2> d, View<T, 2> dx, View<acc_t<T>, 2> partial,
                         View<acc_t<T>, 1> dw) {
  note_rows(stream, "delta_conv_backward", 2 * bytes_in(x) + 3 * bytes_in(d), bytes_in(d) + bytes_in(dx));
  using A = acc_t<T>;
  const std::int64_t rows = x.rows(), channels = x.columns(), taps = w.rows() / channels;
  parallel_rows(stream, rows, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const std::int64_t sequence = quotient(r, shape.tokens), t = r - sequence * shape.tokens;
    const std::int64_t there = tokens_up_to({documents, shape, sequence}, t, taps);
    const T* const in = x.row(r);
    T* const slope = d.row(r);
    team.each(channels, [=](std::int64_t c) {
      const A sum = convolved<A>(in + c, x.pitch, w.data + c * taps, taps, there), s = math::sigmoid(sum);
      slope[c] = T(A(slope[c]) * s * (1 + sum * (1 - s)));
    });
  });
  parallel_rows(stream, rows, [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const std::int64_t sequence = quotient(r, shape.tokens), t = r - sequence * shape.tokens;
    const std::int64_t there = tokens_from({documents, shape, sequence}, t, shape.tokens, taps);
    const T* const slope = d.row(r);
    T* const out = dx.row(r);
    team.each(channels, [=](std::int64_t c) {
      A sum = 0;
      for (std::int64_t j = 0; j < there; ++j) sum += A(w[c * taps + taps - 1 - j]) * A(slope[j * d.pitch + c]);
      out[c] = T(sum);
    });
  });
  if (dw.empty()) return;
  const View<A, 2> sums = partial.slice(0, norm_partial_rows(rows));
  const std::int64_t parts = sums.rows();
  parallel_rows(stream, parts, [=] FORGE_LAMBDA(std::int64_t part, Team team) {
    A* const sum = sums.row(part);
    team.each(channels * taps, [=](std::int64_t i) { sum[i] = 0; });
    for (std::int64_t r = quotient(rows * part, parts), end = quotient(rows * (part + 1), parts); r < end; ++r) {
      const std::int64_t sequence = quotient(r, shape.tokens), t = r - sequence * shape.tokens;
      const std::int64_t there = tokens_up_to({documents, shape, sequence}, t, taps);
      const T *const slope = d.row(r), *const in = x.row(r);
      team.each(channels * taps, [=](std::int64_t i) {
        const std::int64_t c = quotient(i, taps), j = taps - 1 - (i - c * taps);
        if (j < there) sum[i] += A(slope[c]) * A(in[c - j * x.pitch]);
      });
    }
  });
  add_partial_sums(stream, sums, dw);
}

FORGE_INSTANTIATE_FUNCTION(delta_conv_forward);
FORGE_INSTANTIATE_FUNCTION(delta_conv_backward);

}  // namespace forge
