#include "fixture.hpp"
#include "kernels/experts/expert_kernels.hpp"

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

// Experts 0 and 3 have no row, the last rows are of none, and the rows are places [2, 2 + R) of a longer order.
template <class T>
void check_expert_bias(int64_t C, BiasColumns which, bool weighted) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  const std::vector<int64_t> begins{0, 2, 6, 9, 9, 12};
  const int64_t R = 12, E = 5;
  Buffer memory(begins.size() * sizeof(int64_t));
  Stream s(2);
  copy_to_device(s, memory.data(), begins.data(), begins.size() * sizeof(int64_t));
  const RowGroups groups{E, reinterpret_cast<const int64_t*>(memory.data()), 2, 2 + R};
  const RowGroups here{E, begins.data(), 2, 2 + R};  // for the host
  const auto expert_of = [&](int64_t r) {
    for (int64_t e = 0; e < E; ++e)
      if (r >= here.begin_of(e) && r < here.begin_of(e + 1)) return e;
    return int64_t{-1};
  };
  Field<T> bias(E, which.columns, normal_values(E * which.columns, 1)), x(R, C, normal_values(R * C, 2), 3),
      d(R, C, normal_values(R * C, 3), 1);
  Field<A> weights(1, R, normal_values(R, 4)), d_weights(1, R, normal_values(R, 5)),
      d_bias(E, which.columns, normal_values(E * which.columns, 6));
  const Values b = bias.read(s), in = x.read(s), ds = d.read(s), w = weights.read(s);
  std::vector<N> out, of_weights, of_bias;
  for (const double value : d_bias.read(s)) of_bias.push_back(value);
  const auto entry = [&](int64_t r, int64_t j) { return r * C + which.first + j; };
  for (int64_t r = 0; r < R; ++r) {
    const int64_t e = expert_of(r);
    const N weight = weighted ? N(w[r]) : N(1.0);
    for (int64_t c = 0; c < C; ++c) out.push_back(in[r * C + c]);
    of_weights.push_back(d_weights.read(s)[r]);
    if (e < 0) continue;
    N dot = 0.0;
    for (int64_t j = 0; j < which.columns; ++j) {
      const N b_j = b[e * which.columns + j];
      out[entry(r, j)] = out[entry(r, j)] + weight * b_j;
      dot = dot + b_j * N(ds[entry(r, j)]);
    }
    of_weights.back() = of_weights.back() + dot;
  }
  for (int64_t e = 0; e < E; ++e)
    for (int64_t j = 0; j < which.columns; ++j) {
      N sum = 0.0;
      for (int64_t r = 0; r < R; ++r)
        if (expert_of(r) == e) sum = sum + (weighted ? N(w[r]) : N(1.0)) * N(ds[entry(r, j)]);
      of_bias[e * which.columns + j] = of_bias[e * which.columns + j] + sum;
    }
  const View<const A, 1> of_rows = weighted ? View<const A, 1>(weights.vector()) : View<const A, 1>();
  expert_bias_forward<T>(s, groups, bias.view(), which, of_rows, x.view());
  expert_bias_weights<T>(s, groups, bias.view(), which, d.view(), d_weights.vector());
  expert_bias_backward<T>(s, groups, d.view(), which, of_rows, d_bias.view());
  expect_close<T>(x.read(s), out, "x");
  expect_close<A>(d_weights.read(s), of_weights, "d_weights");
  expect_close<A>(d_bias.read(s), of_bias, "d_bias");
}

TEST(ExpertBias, ForwardAndBackward) {
  for (const auto& [C, which] :
       {std::pair<int64_t, BiasColumns>{1, {0, 1}}, {17, {5, 6}}, {64, {0, 64}}, {600, {8, 520}}})
    for (const bool weighted : {false, true}) {
      SCOPED_TRACE(testing::Message() << C << " columns");
      check_expert_bias<double>(C, which, weighted);
      check_expert_bias<float>(C, which, weighted);
      check_expert_bias<bf16>(C, which, weighted);
    }
}

}  // namespace
}  // namespace forge
