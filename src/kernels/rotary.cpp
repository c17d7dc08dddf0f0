#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/kernels.hpp"

namespace forge {

// (x1, x2) ← (x1 cos − x2 sin, x2 cos + x1 sin); the inverse has −sin.
template <class T>
void rotary(Stream& stream, View<T, 3> x, View<const std::int32_t, 1> positions, View<const acc_t<T>, 2> cosine,
            View<const acc_t<T>, 2> sine, bool inverse, RotaryPairs pairs) {
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), head_dim = x.extent(2), h = cosine.columns();
  require(2 * h <= head_dim, "rotary: more angles than pairs of a head");
  const bool halves = pairs == RotaryPairs::halves;
  const A sign = inverse ? A(-1) : A(1);
  parallel_rows(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t r, Team team) {
    const A *c = cosine.row(positions[r]), *s = sine.row(positions[r]);
    T* first = x.row(r) + head_dim - 2 * h;
    const auto rotate = [=](T* lower, T* upper, std::int64_t j) {
      const A a = A(*lower), b = A(*upper), sin = sign * s[j];
      *lower = T(a * c[j] - b * sin);
      *upper = T(b * c[j] + a * sin);
    };
    if (halves)
      team.each(heads, h, [=](std::int64_t head, std::int64_t j) {
        T* lower = first + head * head_dim + j;
        rotate(lower, lower + h, j);
      });
    else
      team.each(heads, h, [=](std::int64_t head, std::int64_t j) {
        T* lower = first + head * head_dim + 2 * j;
        rotate(lower, lower + 1, j);
      });
  });
}

#define FORGE_ROTARY(T)                                                                              \
  template void rotary<T>(Stream&, View<T, 3>, View<const std::int32_t, 1>, View<const acc_t<T>, 2>, \
                          View<const acc_t<T>, 2>, bool, RotaryPairs);
FORGE_COMPUTE_TYPES(FORGE_ROTARY)

}  // namespace forge
