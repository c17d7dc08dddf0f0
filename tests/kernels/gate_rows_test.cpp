#include "fixture.hpp"
#include "kernels/experts/expert_kernels.hpp"

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

template <class T>
void check_gate(int64_t rows, int64_t columns) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  Field<T> x(rows, columns, normal_values(rows * columns, 1), 1),
      dy(rows, columns, normal_values(rows * columns, 2), 2);
  Field<T> y(rows, columns), dx(rows, columns), d_logit(1, rows);
  Field<A> gate(1, rows, normal_values(rows, 3, 2));
  Stream s(2);
  const Values logits = gate.read(s);
  sigmoid<A>(s, gate.vector());
  const Values g = gate.read(s), in = x.read(s), d = dy.read(s);
  std::vector<N> out, d_in, d_logits;
  for (int64_t r = 0; r < rows; ++r) {
    ASSERT_NEAR(g[r], 1 / (1 + std::exp(-logits[r])), 8 * roundoff<A>);
    const N weight(g[r]);
    for (int64_t j = 0; j < columns; ++j) {
      out.push_back(weight * N(in[r * columns + j]));
      d_in.push_back(weight * N(d[r * columns + j]));
    }
    const N dot = sum<N>(columns, [&](int64_t j) { return N(d[r * columns + j]) * N(in[r * columns + j]); });
    d_logits.push_back(dot * weight * (N(1) - weight));
  }
  gate_rows<T>(s, x.view(), gate.vector(), y.view());
  expect_close<T>(y.read(s), out, "y");
  gate_rows_backward<T>(s, dy.view(), x.view(), gate.vector(), dx.view(), d_logit.vector());
  expect_close<T>(dx.read(s), d_in, "dx");
  expect_close<T>(d_logit.read(s), d_logits, "d_logit");
  gate_rows_backward<T>(s, dy.view(), x.view(), gate.vector(), dy.view(), d_logit.vector());
  EXPECT_TRUE(same_bits(dy.read(s), dx.read(s))) << "in place";
}

TEST(GateRows, ForwardAndBackward) {
  for (const int64_t columns : {1, 3, 17, 64}) {
    check_gate<double>(5, columns);
    check_gate<float>(5, columns);
    check_gate<bf16>(5, columns);
  }
}

}  // namespace
}  // namespace forge
