#include "core/error.hpp"
#include "device/parallel.hpp"
#include "kernels/kernels.hpp"

namespace forge {

namespace {

// Two neighbours of a head.
template <class T>
struct Neighbours {
  T lower, upper;
};

}  // namespace

// (x1, x2) ← (x1 cos − x2 sin, x2 cos + x1 sin); the inverse has −sin.
template <class T>
void rotary(Stream& stream, View<T, 3> x, View<const std::int32_t, 1> positions, View<const acc_t<T>, 2> cosine,
            View<const acc_t<T>, 2> sine, bool inverse, RotaryPairs pairs) {
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), head_dim = x.extent(2), h = cosine.columns();
  require(2 * h <= head_dim, "rotary: more angles than pairs of a head");
  const A sign = inverse ? A(-1) : A(1);
  const bool halves = pairs == RotaryPairs::halves;
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t head, Team team) {
    const A *c = cosine.row(positions[r]), *s = sine.row(positions[r]);
    T* first = x.row(r) + (head + 1) * head_dim - 2 * h;
    const auto rotate = [=](T& lower, T& upper, const A& cos, const A& sin_j) {
      const A a = A(lower), b = A(upper), sin = sign * sin_j;
      lower = T(a * cos - b * sin);
      upper = T(b * cos + a * sin);
    };
    if (halves)
      team.map(h, rotate, in_place(first), in_place(first + h), c, s);
    else if (FORGE_DEVICE_CODE)
      team.map(
          h, [=](Neighbours<T>& pair, const A& cos, const A& sin) { rotate(pair.lower, pair.upper, cos, sin); },
          in_place(reinterpret_cast<Neighbours<T>*>(first)), c, s);
    else
      team.each(h, [=](std::int64_t j) {
        T* lower = first + 2 * j;
        rotate(*lower, *(lower + 1), c[j], s[j]);
      });
  };
  parallel_rows(stream, x.rows(), heads, row_width<T>(halves ? h : 2 * h), body);
}

#define FORGE_ROTARY(T)                                                                              \
  template void rotary<T>(Stream&, View<T, 3>, View<const std::int32_t, 1>, View<const acc_t<T>, 2>, \
                          View<const acc_t<T>, 2>, bool, RotaryPairs);
FORGE_COMPUTE_TYPES(FORGE_ROTARY)

}  // namespace forge
