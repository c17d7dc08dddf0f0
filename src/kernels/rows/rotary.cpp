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

template <class A>
struct Rotation {
  A sign;

  template <class T>
  FORGE_INLINE void operator()(const T& x1, const T& x2, const A& cos, const A& sin_j, T& lower, T& upper) const {
    const A a = A(x1), b = A(x2), sin = sign * sin_j;
    lower = T(a * cos - b * sin);
    upper = T(b * cos + a * sin);
  }
};

// Halves of h numbers, a head's first ones, of several heads at a time; all begin at multiples of 16 bytes.
template <class T>
void rotary_halves(Stream& stream, View<T, 3> x, View<const std::int32_t, 1> positions, View<const acc_t<T>, 2> cosine,
                   View<const acc_t<T>, 2> sine, Rotation<acc_t<T>> rotate) {
  constexpr int together = rows_at_a_time;
  const std::int64_t heads = x.extent(1), head_dim = x.extent(2), h = cosine.columns();
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t part, Team team) {
    using Half = decltype(team.template row<1, true>(h, static_cast<const T*>(x.row(r))));
    Array<Half, together> lows, highs;
    const int first = static_cast<int>(part) * together, all = static_cast<int>(heads);
    const auto place = [=](int head) { return x.row(r) + head * head_dim; };
    for_each_of<together>([&](int i) {
      const T* from = place(first + i < all ? first + i : first);
      lows[i] = team.template row<1, true>(h, from);
      highs[i] = team.template row<1, true>(h, from + h);
    });
    const auto cos = team.template beside<T, true>(h, cosine.row(positions[r]));
    const auto sin = team.template beside<T, true>(h, sine.row(positions[r]));
    for_each_of<together>([&](int i) {
      if (first + i < all) team.map(h, rotate, lows[i], highs[i], cos, sin, place(first + i), place(first + i) + h);
    });
  };
  parallel_rows(stream, x.rows(), (heads + together - 1) / together, row_width<T>(h), body);
}

}  // namespace

// (x1, x2) ← (x1 cos − x2 sin, x2 cos + x1 sin); the inverse has −sin.
template <class T>
void rotary(Stream& stream, View<T, 3> x, View<const std::int32_t, 1> positions, View<const acc_t<T>, 2> cosine,
            View<const acc_t<T>, 2> sine, bool inverse, RotaryPairs pairs, RotaryPart part) {
  using A = acc_t<T>;
  const std::int64_t heads = x.extent(1), head_dim = x.extent(2), h = cosine.columns();
  require(2 * h <= head_dim, "rotary: more angles than pairs of a head");
  const std::int64_t rotated = x.rows() * heads * 2 * h * static_cast<std::int64_t>(sizeof(T));
  note_rows(stream, "rotary", rotated, rotated);
  const Rotation<A> rotate{inverse ? A(-1) : A(1)};
  const bool halves = pairs == RotaryPairs::halves;
  const std::int64_t skipped = part == RotaryPart::first ? 0 : head_dim - 2 * h;
  const auto aligned = [](std::int64_t count) { return count * static_cast<int>(sizeof(T)) % 16 == 0; };
  const bool whole = rows_at_a_time > 1 && aligned_rows(x, cosine, sine) && skipped == 0 && aligned(head_dim) &&
                     aligned(h) && row_width<T>(h).accesses <= 32;
  if (halves && whole) return rotary_halves<T>(stream, x, positions, cosine, sine, rotate);
  const auto body = [=] FORGE_LAMBDA(std::int64_t r, std::int64_t head, Team team) {
    const A *c = cosine.row(positions[r]), *s = sine.row(positions[r]);
    T* first = x.row(r) + head * head_dim + skipped;
    const auto turn = [=](T& lower, T& upper, const A& cos, const A& sin) {
      rotate(lower, upper, cos, sin, lower, upper);
    };
    if (halves)
      team.map(h, turn, in_place(first), in_place(first + h), c, s);
    else if (FORGE_DEVICE_CODE)
      team.map(
          h, [=](Neighbours<T>& pair, const A& cos, const A& sin) { turn(pair.lower, pair.upper, cos, sin); },
          in_place(reinterpret_cast<Neighbours<T>*>(first)), c, s);
    else
      team.each(h, [=](std::int64_t j) {
        T* lower = first + 2 * j;
        turn(*lower, *(lower + 1), c[j], s[j]);
      });
  };
  parallel_rows(stream, x.rows(), heads, row_width<T>(halves ? h : 2 * h), body);
}

FORGE_INSTANTIATE_FUNCTION(rotary);

}  // namespace forge
