#include "device/parallel.hpp"
#include "kernels/kernels.hpp"

namespace forge {

// (x1, x2) ← (x1 cos − x2 sin, x2 cos + x1 sin); the inverse has −sin.
template <class T>
void rotary(Stream& stream, View<T, 3> x, View<const std::int32_t, 1> positions, View<const acc_t<T>, 2> cosine,
            View<const acc_t<T>, 2> sine, bool inverse) {
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), head_dim = x.extent(2), half = head_dim / 2;
  const A sign = inverse ? A(-1) : A(1);
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A *c = cosine.row(positions[r]), *s = sine.row(positions[r]);
    T* row = x.row(r);
    team.each(heads, half, [=](std::int64_t h, std::int64_t j) {
      T *lower = row + h * head_dim, *upper = lower + half;
      const A a = A(lower[j]), b = A(upper[j]), sin = sign * s[j];
      lower[j] = T(a * c[j] - b * sin);
      upper[j] = T(b * c[j] + a * sin);
    });
  });
}

#define FORGE_ROTARY(T)                                                                              \
  template void rotary<T>(Stream&, View<T, 3>, View<const std::int32_t, 1>, View<const acc_t<T>, 2>, \
                          View<const acc_t<T>, 2>, bool);
FORGE_ROTARY(double)
FORGE_ROTARY(float)
FORGE_ROTARY(bf16)

}  // namespace forge
