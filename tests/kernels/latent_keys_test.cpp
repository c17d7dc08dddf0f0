#include <array>

#include "core/error.hpp"
#include "fixture.hpp"
#include "kernels/kernels.hpp"

namespace forge {
namespace {

using namespace reference;

// Heads of `plain` + `rope` entries of a key and `value` of a value, every matrix with its own pitch.
template <class T>
struct Problem {
  std::int64_t R, H, plain, rope, value;
  Field<T> up, rope_key, k, v;

  explicit Problem(const std::array<std::int64_t, 5>& n)
      : R(n[0]),
        H(n[1]),
        plain(n[2]),
        rope(n[3]),
        value(n[4]),
        up(R, H * (plain + value), normal_values(R * H * (plain + value), 1), 3),
        rope_key(R, rope, normal_values(R * rope, 2), 5),
        k(R, H * (plain + rope), normal_values(R * H * (plain + rope), 3), 2),
        v(R, H * value, normal_values(R * H * value, 4), 1) {}
  void forward(Stream& s) { latent_keys_forward<T>(s, up.heads(H), rope_key.view(), k.heads(H), v.heads(H)); }
  void backward(Stream& s) { latent_keys_backward<T>(s, k.heads(H), v.heads(H), up.heads(H), rope_key.view()); }
};

constexpr std::array<std::array<std::int64_t, 5>, 5> sizes{
    {{1, 1, 1, 2, 1}, {7, 3, 5, 4, 6}, {33, 2, 128, 64, 128}, {4, 5, 12, 2, 3}, {9, 16, 3, 6, 17}}};

template <class T>
void check(const std::array<std::int64_t, 5>& n) {
  using N = Tracked<acc_t<T>>;
  Problem<T> p(n);
  Stream s(2);
  const auto& [R, H, plain, rope, value] = n;
  const std::int64_t of_up = plain + value, of_key = plain + rope;
  const auto at = [](const Values& x, std::int64_t i) { return x[static_cast<std::size_t>(i)]; };
  const Values up = p.up.read(s), rope_key = p.rope_key.read(s), d_k = p.k.read(s), d_v = p.v.read(s);
  Values k, v, d_up;
  std::vector<N> d_rope;
  for (std::int64_t r = 0; r < R; ++r) {
    for (std::int64_t h = 0; h < H; ++h) {
      const std::int64_t head = r * H + h;
      for (std::int64_t j = 0; j < of_key; ++j)
        k.push_back(j < plain ? at(up, head * of_up + j) : at(rope_key, r * rope + j - plain));
      for (std::int64_t j = 0; j < value; ++j) v.push_back(at(up, head * of_up + plain + j));
      for (std::int64_t j = 0; j < of_up; ++j)
        d_up.push_back(j < plain ? at(d_k, head * of_key + j) : at(d_v, head * value + j - plain));
    }
    for (std::int64_t j = 0; j < rope; ++j) {
      N sum(0.0);
      for (std::int64_t h = 0; h < H; ++h) sum = sum + N(at(d_k, (r * H + h) * of_key + plain + j));
      d_rope.push_back(sum);
    }
  }
  p.backward(s);
  EXPECT_TRUE(same_bits(p.up.read(s), d_up));
  expect_close<T>(p.rope_key.read(s), d_rope, "d_rope_key");
  p.up.write(up);
  p.rope_key.write(rope_key);
  p.forward(s);
  EXPECT_TRUE(same_bits(p.k.read(s), k));
  EXPECT_TRUE(same_bits(p.v.read(s), v));
}

TEST(LatentKeys, join_and_part) {
  for (const auto& n : sizes) {
    SCOPED_TRACE(::testing::Message() << n[0] << " x " << n[1] << " x (" << n[2] << " + " << n[3] << ", " << n[4]
                                      << ")");
    check<double>(n);
    check<float>(n);
    check<bf16>(n);
  }
}

TEST(LatentKeys, backward_is_the_adjoint) {
  for (const auto& n : sizes) {
    Problem<double> p(n);
    Stream s(2);
    const Values x = p.up.read(s), key = p.rope_key.read(s), u = p.k.read(s), w = p.v.read(s);
    p.backward(s);
    const double back = dot(p.up.read(s), x) + dot(p.rope_key.read(s), key);
    p.up.write(x);
    p.rope_key.write(key);
    p.forward(s);
    const double there = dot(p.k.read(s), u) + dot(p.v.read(s), w);
    expect_adjoint(there, back, (norm(x) + norm(key) * std::sqrt(static_cast<double>(p.H))) * (norm(u) + norm(w)),
                   p.R * p.H * (p.plain + p.rope + p.value));
  }
}

TEST(LatentKeys, any_number_of_threads_gives_the_same_bits) {
  expect_same_on_any_threads([&](Stream& s) {
    Problem<float> p(sizes[4]);
    p.backward(s);
    Values all = p.up.read(s);
    append(all, p.rope_key.read(s));
    p.forward(s);
    append(all, p.k.read(s));
    append(all, p.v.read(s));
    return all;
  });
}

TEST(LatentKeys, sizes_that_do_not_fit_are_refused) {
  Problem<double> p(sizes[1]);
  Stream s(1);
  EXPECT_THROW(latent_keys_forward<double>(s, p.k.heads(3), p.rope_key.view(), p.k.heads(3), p.v.heads(3)), Error);
  EXPECT_THROW(latent_keys_backward<double>(s, p.k.heads(3), p.v.heads(1), p.up.heads(3), p.rope_key.view()), Error);
}

}  // namespace
}  // namespace forge
