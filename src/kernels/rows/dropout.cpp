#include "core/random.hpp"
#include "device/parallel.hpp"
#include "kernels/kernels.hpp"

namespace forge {

namespace {

// The mask as kernels hold it. Column j takes word j mod 4 of the draw (sample, position, j / 4), and is kept where the
// word reaches the threshold rate · 2^32.
struct Mask {
  std::uint64_t key;
  std::uint32_t threshold;
  double scale;  // 1 / (1 − rate)
  const std::int64_t* samples;
  const std::int32_t* positions;
  std::int64_t first;

  explicit Mask(const Dropout& how)
      : key(how.key),
        threshold(static_cast<std::uint32_t>(how.rate * 4294967296.0)),
        scale(1 / (1 - how.rate)),
        samples(how.samples.data),
        positions(how.positions.data),
        first(how.first) {}
};

struct MaskRow {
  std::uint64_t key, sample, position;

  FORGE_INLINE MaskRow(const Mask& mask, std::int64_t r)
      : key(mask.key),
        sample(static_cast<std::uint64_t>(mask.samples[r])),
        position(static_cast<std::uint64_t>(mask.positions[r]) << 32) {}
  FORGE_INLINE Array<std::uint32_t, 4> words(std::int64_t quad) const {
    return philox(key, sample, position | static_cast<std::uint32_t>(quad));
  }
};

// store(j, kept) for every column of a row: four columns a draw, and the first and the last ones by themselves.
template <class Store>
FORGE_INLINE void each_masked(Team team, std::int64_t n, const MaskRow& row, const Mask& mask, Store store) {
  const std::int64_t first = mask.first, head = (4 - first % 4) % 4 < n ? (4 - first % 4) % 4 : n;
  const std::int64_t quads = (n - head) / 4, tail = head + 4 * quads;
  const std::uint32_t threshold = mask.threshold;
  const auto alone = [=](std::int64_t j) {
    store(j, row.words((first + j) / 4)[static_cast<int>((first + j) % 4)] >= threshold);
  };
  team.each(head, alone);
  team.each(quads, [=](std::int64_t q) {
    const std::int64_t j = head + 4 * q;
    const auto words = row.words((first + j) / 4);
    store(j, words[0] >= threshold);
    store(j + 1, words[1] >= threshold);
    store(j + 2, words[2] >= threshold);
    store(j + 3, words[3] >= threshold);
  });
  team.each(n - tail, [=](std::int64_t i) { alone(tail + i); });
}

}  // namespace

template <class T>
void dropout(Stream& stream, View<const T, 2> x, View<T, 2> y, Dropout how) {
  using A = acc_t<T>;
  if (how.rate == 0) {
    if (x.data != y.data) copy_rows<T>(stream, x, y);
    return;
  }
  note_rows(stream, "dropout", bytes_in(x), bytes_in(y));
  const std::int64_t n = x.columns();
  const Mask mask(how);
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A scale = A(mask.scale);
    const T* in = x.row(r);
    T* out = y.row(r);
    each_masked(team, n, MaskRow(mask, r), mask, [=](std::int64_t j, bool kept) {
      const A value = A(in[j]) * scale;
      out[j] = T(kept ? value : A(0));
    });
  });
}

template <class T>
void masked_residual_add(Stream& stream, View<const T, 2> residual, View<const T, 2> x, View<T, 2> out, Mask mask) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A scale = A(mask.scale);
    const T *a = residual.row(r), *b = x.row(r);
    T* to = out.row(r);
    each_masked(team, n, MaskRow(mask, r), mask, [=](std::int64_t j, bool kept) {
      const A value = A(b[j]) * scale;
      to[j] = T(A(a[j]) + (kept ? value : A(0)));
    });
  });
}

template <class T>
void residual_add(Stream& stream, View<const T, 2> residual, View<const T, 2> x, View<T, 2> out, Dropout how) {
  note_rows(stream, "residual_add", bytes_in(residual, x), bytes_in(out));
  using A = acc_t<T>;
  if (how.rate > 0) return masked_residual_add(stream, residual, x, out, Mask(how));
  const std::int64_t n = x.columns();
  parallel_rows(stream, x.rows(), row_width<T>(n), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    team.map(
        n, [=](const T& a, const T& b, T& to) { to = T(A(a) + A(b)); }, residual.row(r), x.row(r), out.row(r));
  });
}

FORGE_INSTANTIATE_FUNCTION(dropout);
FORGE_INSTANTIATE_FUNCTION(residual_add);

}  // namespace forge
