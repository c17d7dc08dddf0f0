#include "core/random.hpp"
#include "device/parallel.hpp"
#include "kernels/kernels.hpp"

namespace forge {

namespace {

// The mask as kernels hold it: an element is kept where its random 32-bit word reaches the threshold rate · 2^32.
struct Mask {
  std::uint64_t key;
  std::uint32_t threshold;
  double scale;  // 1 / (1 − rate)
  const std::int64_t* samples;
  const std::int32_t* positions;

  explicit Mask(const Dropout& how)
      : key(how.key),
        threshold(static_cast<std::uint32_t>(how.rate * 4294967296.0)),
        scale(1 / (1 - how.rate)),
        samples(how.samples.data),
        positions(how.positions.data) {}
};

struct MaskRow {
  std::uint64_t key, sample, position;
  std::uint32_t threshold;

  FORGE_INLINE MaskRow(const Mask& mask, std::int64_t r)
      : key(mask.key),
        sample(static_cast<std::uint64_t>(mask.samples[r])),
        position(static_cast<std::uint64_t>(mask.positions[r]) << 32),
        threshold(mask.threshold) {}
  FORGE_INLINE bool keeps(std::int64_t column) const {
    return philox(key, sample, position | static_cast<std::uint32_t>(column))[0] >= threshold;
  }
};

}  // namespace

template <class T>
void dropout(Stream& stream, View<const T, 2> x, View<T, 2> y, Dropout how) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  if (how.rate == 0) {
    parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
      const T* in = x.row(r);
      T* out = y.row(r);
      team.each(n, [=](std::int64_t j) { out[j] = in[j]; });
    });
    return;
  }
  const Mask mask(how);
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const MaskRow row(mask, r);
    const A scale = A(mask.scale);
    const T* in = x.row(r);
    T* out = y.row(r);
    team.each(n, [=](std::int64_t j) {
      const A value = A(in[j]) * scale;
      out[j] = T(row.keeps(j) ? value : A(0));
    });
  });
}

template <class T>
void residual_add(Stream& stream, View<const T, 2> residual, View<const T, 2> x, View<T, 2> out, Dropout how) {
  using A = acc_t<T>;
  const std::int64_t n = x.columns();
  if (how.rate == 0) {
    parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
      const T *a = residual.row(r), *b = x.row(r);
      T* to = out.row(r);
      team.each(n, [=](std::int64_t j) { to[j] = T(A(a[j]) + A(b[j])); });
    });
    return;
  }
  const Mask mask(how);
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const MaskRow row(mask, r);
    const A scale = A(mask.scale);
    const T *a = residual.row(r), *b = x.row(r);
    T* to = out.row(r);
    team.each(n, [=](std::int64_t j) {
      const A value = A(b[j]) * scale;
      to[j] = T(A(a[j]) + (row.keeps(j) ? value : A(0)));
    });
  });
}

#define FORGE_DROPOUT(T)                                                    \
  template void dropout<T>(Stream&, View<const T, 2>, View<T, 2>, Dropout); \
  template void residual_add<T>(Stream&, View<const T, 2>, View<const T, 2>, View<T, 2>, Dropout);
FORGE_DROPOUT(double)
FORGE_DROPOUT(float)
FORGE_DROPOUT(bf16)

}  // namespace forge
