#include <limits>

#include "fixture.hpp"
#include "kernels/kernels.hpp"

namespace forge {
namespace {

using namespace reference;

template <class N>
struct Result {
  N loss, z;
  std::vector<N> d_logits;
};

template <class N>
Result<N> reference_row(const std::vector<N>& x, std::int64_t label, double scale, double z_coefficient) {
  const auto n = static_cast<std::int64_t>(x.size());
  N largest = x[0];
  for (const N& candidate : x)
    if (value(candidate) > value(largest)) largest = candidate;
  const N total = sum<N>(n, [&](std::int64_t j) { return exp(x[j] - largest); });
  const N log_sum = log(total), lse = largest + log_sum;
  Result<N> row{log_sum - (x[label] - largest), lse * lse, {}};
  for (std::int64_t j = 0; j < n; ++j) {
    const N p = exp(x[j] - largest) * ((N(1.0) + constant<N>(2 * z_coefficient) * lse) / total);
    row.d_logits.push_back((j == label ? p - N(1.0) : p) * constant<N>(scale));
  }
  return row;
}

template <class T>
struct Problem {
  using A = acc_t<T>;
  std::int64_t R, V;
  double scale = 1.0 / 37, z_coefficient;
  Field<A> logits;
  Field<std::int32_t> labels;
  Field<A> loss, z;
  Field<T> d;

  Problem(std::int64_t rows, std::int64_t vocabulary, double zc, double spread = 4)
      : R(rows),
        V(vocabulary),
        z_coefficient(zc),
        logits(R, V, normal_values(R * V, 1, spread), 3),
        labels(1, R),
        loss(1, R),
        z(1, R),
        d(R, V, 2) {
    Values at;
    for (std::int64_t r = 0; r < R; ++r) at.push_back(r % 5 == 3 ? -1.0 : static_cast<double>(r * 7 % V));
    labels.write(at);
    loss.write(Values(static_cast<std::size_t>(R), 99.0));
    z.write(Values(static_cast<std::size_t>(R), 99.0));
    d.write(Values(static_cast<std::size_t>(R * V), 99.0));
  }
  void run(Stream& s, View<T, 2> to) {
    cross_entropy<T>(s, logits.view(), labels.vector(), scale, z_coefficient, loss.vector(), z.vector(), to);
  }
};

template <class T>
void check(std::int64_t R, std::int64_t V, double zc, double spread) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  Problem<T> p(R, V, zc, spread);
  Stream s(2);
  const Values x = p.logits.read(s), labels = p.labels.read(s);
  std::vector<N> loss, z, d;
  for (std::int64_t r = 0; r < R; ++r) {
    Result<N> row{N(0.0), N(0.0), std::vector<N>(static_cast<std::size_t>(V), N(0.0))};
    if (labels[r] >= 0)
      row = reference_row<N>(std::vector<N>(x.begin() + r * V, x.begin() + (r + 1) * V),
                             static_cast<std::int64_t>(labels[r]), p.scale, zc);
    loss.push_back(row.loss);
    z.push_back(row.z);
    d.insert(d.end(), row.d_logits.begin(), row.d_logits.end());
  }
  p.run(s, p.d.view());
  expect_close<A>(p.loss.read(s), loss, "loss");
  expect_close<A>(p.z.read(s), z, "z");
  expect_close<T>(p.d.read(s), d, "d_logits");
  const Values with_gradient = p.loss.read(s);
  p.run(s, {});
  EXPECT_TRUE(same_bits(with_gradient, p.loss.read(s))) << "the loss must not depend on the gradient being wanted";
  if constexpr (std::is_same_v<T, A>) {
    const Values apart = p.d.read(s);
    p.run(s, p.logits.view());
    EXPECT_TRUE(same_bits(apart, p.logits.read(s))) << "d_logits over logits";
  }
}

TEST(CrossEntropy, matches_its_formula) {
  for (const std::int64_t V : {1, 3, 17, 64, 127, 1000})
    for (const std::int64_t R : {1, 6})
      for (const double zc : {0.0, 1e-2})
        for (const double spread : {4.0, 1000.0}) {
          SCOPED_TRACE(::testing::Message() << R << " x " << V << ", z " << zc << ", spread " << spread);
          check<double>(R, V, zc, spread);
          check<float>(R, V, zc, spread);
          check<bf16>(R, V, zc, spread);
        }
}

// d_logits is the gradient of scale · Σ (loss + z_coefficient · z).
TEST(CrossEntropy, backward_is_the_adjoint) {
  for (const std::int64_t V : {1, 3, 127})
    for (const double zc : {0.0, 1e-2}) {
      Problem<double> p(11, V, zc);
      Stream s(2);
      p.run(s, p.d.view());
      const Values x = p.logits.read(s), v = normal_values(p.R * V, 9), labels = p.labels.read(s), d = p.d.read(s);
      double directional = 0, magnitude = norm(d) * norm(v);
      for (std::int64_t r = 0; r < p.R; ++r) {
        if (labels[r] < 0) continue;
        std::vector<Dual> row;
        for (std::int64_t j = 0; j < V; ++j) row.emplace_back(x[r * V + j], v[r * V + j]);
        const auto result = reference_row<Dual>(row, static_cast<std::int64_t>(labels[r]), p.scale, zc);
        const double term = p.scale * (result.loss.d + zc * result.z.d);
        directional += term;
        magnitude += std::abs(term);
      }
      expect_adjoint(directional, dot(d, v), magnitude + p.scale, p.R * V);
    }
}

TEST(CrossEntropy, nan_and_infinity_reach_the_loss) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::int64_t where : {0, 1, 62, 63, 64, 126})
    for (const double bad : {std::nan(""), inf}) {
      Problem<float> p(3, 127, 0);
      Values x = p.logits.read();
      x[static_cast<std::size_t>(127 + where)] = bad;
      p.logits.write(x);
      Stream s;
      p.run(s, p.d.view());
      const Values loss = p.loss.read(s);
      EXPECT_TRUE(std::isfinite(loss[0]) && std::isfinite(loss[2]));
      EXPECT_TRUE(std::isnan(loss[1])) << bad << " at " << where;
    }
}

// A vocabulary that is padded for the matrix product, and masked logits.
TEST(CrossEntropy, minus_infinity_has_no_probability) {
  Problem<float> p(1, 4, 0);
  p.logits.write({1, -std::numeric_limits<double>::infinity(), 2, 0.5});
  Stream s;
  p.run(s, p.d.view());
  EXPECT_TRUE(std::isfinite(p.loss.read(s)[0]));
  EXPECT_EQ(p.d.read(s)[1], 0);
}

TEST(CrossEntropy, any_number_of_threads_gives_the_same_bits) {
  expect_same_on_any_threads([&](Stream& s) {
    Problem<bf16> p(23, 333, 1e-3);
    p.run(s, p.d.view());
    s.synchronize();
    Values all = p.loss.read(s);
    append(all, p.z.read(s));
    append(all, p.d.read(s));
    return all;
  });
}

}  // namespace
}  // namespace forge
