#pragma once

#include <type_traits>
#include <vector>

#include "fixture.hpp"
#include "kernels/kernels.hpp"

// Rows of logits with their labels, and the results of cross_entropy, beside its formula.

namespace forge::reference {

template <class N>
struct Result {
  N loss, z;
  std::vector<N> d_logits;
};

// From the largest logit and the sum of e^(x − largest).
template <class N>
Result<N> row_of_sum(const std::vector<N>& x, std::int64_t label, const N& largest, const N& total, double scale,
                     double z_coefficient) {
  const auto n = static_cast<std::int64_t>(x.size());
  const N log_sum = log(total), lse = largest + log_sum;
  Result<N> row{log_sum - (x[label] - largest), lse * lse, {}};
  for (std::int64_t j = 0; j < n; ++j) {
    const N p = exp(x[j] - largest) * ((N(1.0) + constant<N>(2 * z_coefficient) * lse) / total);
    row.d_logits.push_back((j == label ? p - N(1.0) : p) * constant<N>(scale));
  }
  return row;
}

template <class N>
Result<N> reference_row(const std::vector<N>& x, std::int64_t label, double scale, double z_coefficient) {
  const auto n = static_cast<std::int64_t>(x.size());
  N largest = x[0];
  for (const N& candidate : x)
    if (value(candidate) > value(largest)) largest = candidate;
  const N total = sum<N>(n, [&](std::int64_t j) { return exp(x[j] - largest); });
  return row_of_sum(x, label, largest, total, scale, z_coefficient);
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

  Problem(std::int64_t rows, std::int64_t vocabulary, double zc, double spread = 4, std::int64_t gap = 3)
      : R(rows),
        V(vocabulary),
        z_coefficient(zc),
        logits(R, V, normal_values(R * V, 1, spread), gap),
        labels(1, R),
        loss(1, R),
        z(1, R),
        d(R, V, gap == 3 ? 2 : gap) {
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
void check(Problem<T>& p) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  const std::int64_t R = p.R, V = p.V;
  Stream s(2);
  const Values x = p.logits.read(s), labels = p.labels.read(s);
  std::vector<N> loss, z, d;
  for (std::int64_t r = 0; r < R; ++r) {
    Result<N> row{N(0.0), N(0.0), std::vector<N>(static_cast<std::size_t>(V), N(0.0))};
    if (labels[r] >= 0)
      row = reference_row<N>(std::vector<N>(x.begin() + r * V, x.begin() + (r + 1) * V),
                             static_cast<std::int64_t>(labels[r]), p.scale, p.z_coefficient);
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

}  // namespace forge::reference
