#include <array>

#include "fixture.hpp"
#include "kernels/kernels.hpp"

namespace forge {
namespace {

using namespace reference;

template <class T>
struct Problem {
  using A = acc_t<T>;
  std::int64_t R, n, D, h, P = 50;
  Field<T> x;
  Field<A> cosine, sine;
  Field<std::int32_t> positions;

  // Of each head the last, or the first, 2 · angles entries turn.
  Problem(std::int64_t rows, std::int64_t heads, std::int64_t head_dim, std::int64_t angles_of_head)
      : R(rows),
        n(heads),
        D(head_dim),
        h(angles_of_head),
        x(R, n * D, normal_values(R * n * D, 1), D),
        cosine(P, h, angles(true)),
        sine(P, h, angles(false)),
        positions(1, R) {
    Values p;
    for (std::int64_t r = 0; r < R; ++r) p.push_back(static_cast<double>((r * 17 + 3) % P));
    positions.write(p);
  }
  Values angles(bool cosines) const {
    Values v;
    for (std::int64_t p = 0; p < P; ++p)
      for (std::int64_t j = 0; j < h; ++j) {
        const double angle =
            static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(h));
        v.push_back(cosines ? std::cos(angle) : std::sin(angle));
      }
    return v;
  }
  void run(Stream& s, bool inverse, RotaryPairs pairs = RotaryPairs::halves, RotaryPart part = RotaryPart::last) {
    rotary<T>(s, x.heads(n), positions.vector(), cosine.view(), sine.view(), inverse, pairs, part);
  }
};

template <class T>
void check(std::int64_t R, std::int64_t n, std::int64_t D, std::int64_t h, RotaryPairs pairs, RotaryPart part) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  Problem<T> p(R, n, D, h);
  Stream s(2);
  const Values x = p.x.read(s), c = p.cosine.read(s), si = p.sine.read(s), at = p.positions.read(s);
  for (const bool inverse : {false, true}) {
    p.x.write(x);
    p.run(s, inverse, pairs, part);
    std::vector<N> expected(x.begin(), x.end());
    for (std::int64_t r = 0; r < R; ++r)
      for (std::int64_t head = 0; head < n; ++head)
        for (std::int64_t j = 0; j < h; ++j) {
          const bool halves = pairs == RotaryPairs::halves;
          const std::int64_t skipped = part == RotaryPart::first ? 0 : D - 2 * h;
          const std::int64_t low = (r * n + head) * D + skipped + (halves ? j : 2 * j), high = low + (halves ? h : 1);
          const std::int64_t entry = static_cast<std::int64_t>(at[r]) * h + j;
          const N cos = c[entry], sin = inverse ? -si[entry] : si[entry], a = x[low], b = x[high];
          expected[low] = a * cos - b * sin;
          expected[high] = b * cos + a * sin;
        }
    expect_close<T>(p.x.read(s), expected, inverse ? "inverse" : "forward");
  }
}

TEST(Rotary, rotates_each_pair_by_its_position) {
  for (const auto& [R, n, D, h] :
       {std::array<std::int64_t, 4>{1, 1, 2, 1}, std::array<std::int64_t, 4>{7, 3, 16, 8},
        std::array<std::int64_t, 4>{33, 5, 64, 32}, std::array<std::int64_t, 4>{4, 1, 34, 17},
        std::array<std::int64_t, 4>{2, 2, 128, 64}, std::array<std::int64_t, 4>{9, 3, 11, 2},
        std::array<std::int64_t, 4>{5, 4, 192, 32}})
    for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours})
      for (const RotaryPart part : {RotaryPart::last, RotaryPart::first}) {
        SCOPED_TRACE(::testing::Message() << R << " x " << n << " x " << D << ", " << h << " angles");
        check<double>(R, n, D, h, pairs, part);
        check<float>(R, n, D, h, pairs, part);
        check<bf16>(R, n, D, h, pairs, part);
      }
}

// A rotation is linear: J v is the rotation of v, and Jᵀ u its inverse of u.
TEST(Rotary, inverse_is_the_adjoint) {
  const std::int64_t R = 33, n = 5, D = 64;
  const Values u = normal_values(R * n * D, 2), v = normal_values(R * n * D, 3);
  for (const std::int64_t h : {32, 12})
    for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
      Problem<double> p(R, n, D, h);
      Stream s(2);
      p.x.write(v);
      p.run(s, false, pairs);
      const Values jv = p.x.read(s);
      p.x.write(u);
      p.run(s, true, pairs);
      const Values jtu = p.x.read(s);
      expect_adjoint(dot(u, jv), dot(jtu, v), norm(u) * norm(v), R * n * D);
    }
}

TEST(Rotary, any_number_of_threads_gives_the_same_bits) {
  expect_same_on_any_threads([&](Stream& s) {
    Values all;
    for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::neighbours}) {
      Problem<float> p(33, 3, 34, 15);
      p.run(s, false, pairs);
      append(all, p.x.read(s));
    }
    return all;
  });
}

}  // namespace
}  // namespace forge
