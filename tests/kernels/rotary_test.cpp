#include <array>

#include "fixture.hpp"
#include "kernels/kernels.hpp"

namespace forge {
namespace {

using namespace reference;

template <class T>
struct Problem {
  using A = acc_t<T>;
  std::int64_t R, n, D, P = 50;
  Field<T> x;
  Field<A> cosine, sine;
  Field<std::int32_t> positions;

  Problem(std::int64_t rows, std::int64_t heads, std::int64_t head_dim)
      : R(rows),
        n(heads),
        D(head_dim),
        x(R, n * D, normal_values(R * n * D, 1), D + 1),
        cosine(P, D / 2, angles(true)),
        sine(P, D / 2, angles(false)),
        positions(1, R) {
    Values p;
    for (std::int64_t r = 0; r < R; ++r) p.push_back(static_cast<double>((r * 17 + 3) % P));
    positions.write(p);
  }
  Values angles(bool cosines) const {
    Values v;
    for (std::int64_t p = 0; p < P; ++p)
      for (std::int64_t j = 0; j < D / 2; ++j) {
        const double angle =
            static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(D));
        v.push_back(cosines ? std::cos(angle) : std::sin(angle));
      }
    return v;
  }
  void run(Stream& s, bool inverse) {
    rotary<T>(s, x.heads(n), positions.vector(), cosine.view(), sine.view(), inverse);
  }
};

template <class T>
void check(std::int64_t R, std::int64_t n, std::int64_t D) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  Problem<T> p(R, n, D);
  Stream s(2);
  const Values x = p.x.read(s), c = p.cosine.read(s), si = p.sine.read(s), at = p.positions.read(s);
  for (const bool inverse : {false, true}) {
    p.x.write(x);
    p.run(s, inverse);
    std::vector<N> expected(x.size());
    for (std::int64_t r = 0; r < R; ++r)
      for (std::int64_t h = 0; h < n; ++h)
        for (std::int64_t j = 0; j < D / 2; ++j) {
          const std::int64_t low = (r * n + h) * D + j, high = low + D / 2;
          const std::int64_t entry = static_cast<std::int64_t>(at[r]) * (D / 2) + j;
          const N cos = c[entry], sin = inverse ? -si[entry] : si[entry], a = x[low], b = x[high];
          expected[low] = a * cos - b * sin;
          expected[high] = b * cos + a * sin;
        }
    expect_close<T>(p.x.read(s), expected, inverse ? "inverse" : "forward");
  }
}

TEST(Rotary, turns_each_pair_by_its_position) {
  for (const auto& [R, n, D] : {std::array<std::int64_t, 3>{1, 1, 2}, std::array<std::int64_t, 3>{7, 3, 16},
                                std::array<std::int64_t, 3>{33, 5, 64}, std::array<std::int64_t, 3>{4, 1, 34},
                                std::array<std::int64_t, 3>{2, 2, 128}}) {
    SCOPED_TRACE(::testing::Message() << R << " x " << n << " x " << D);
    check<double>(R, n, D);
    check<float>(R, n, D);
    check<bf16>(R, n, D);
  }
}

// A rotation is linear: J v is the rotation of v, and Jᵀ u its inverse of u.
TEST(Rotary, inverse_is_the_adjoint) {
  const std::int64_t R = 33, n = 5, D = 64;
  Problem<double> p(R, n, D);
  Stream s(2);
  const Values u = normal_values(R * n * D, 2), v = normal_values(R * n * D, 3);
  p.x.write(v);
  p.run(s, false);
  const Values jv = p.x.read(s);
  p.x.write(u);
  p.run(s, true);
  const Values jtu = p.x.read(s);
  expect_adjoint(dot(u, jv), dot(jtu, v), norm(u) * norm(v), R * n * D);
}

TEST(Rotary, any_number_of_threads_gives_the_same_bits) {
  expect_same_on_any_threads([&](Stream& s) {
    Problem<float> p(33, 3, 34);
    p.run(s, false);
    s.synchronize();
    return p.x.read(s);
  });
}

}  // namespace
}  // namespace forge
