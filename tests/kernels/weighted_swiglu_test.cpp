#include "fixture.hpp"
#include "kernels/experts/expert_kernels.hpp"

namespace forge {
namespace {

using namespace reference;
using std::int64_t;

template <class T>
void check_weighted_swiglu(int64_t P, int64_t F) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  Field<T> gate_up(P, 2 * F, normal_values(2 * P * F, 1, 2), 3), act(P, F, 1), d(P, F, normal_values(P * F, 2), 2),
      d_gate_up(P, 2 * F, 5);
  Field<A> weights(1, P, normal_values(P, 3)), d_weights(1, P);
  Stream s(2);
  weighted_swiglu_forward<T>(s, gate_up.view(), weights.vector(), act.view());
  weighted_swiglu_backward<T>(s, gate_up.view(), weights.vector(), d.view(), d_gate_up.view(), d_weights.vector());
  const Values in = gate_up.read(s), ds = d.read(s), w = weights.read(s), results = d_gate_up.read(s);
  std::vector<N> forward, backward(in.size()), of_weights;
  const N one = 1.0;
  for (int64_t r = 0; r < P; ++r) {
    const auto product = [&](int64_t j) {
      const N g = in[r * 2 * F + j], u = in[r * 2 * F + F + j];
      return g * (one / (one + exp(N(0.0) - g))) * u;
    };
    for (int64_t j = 0; j < F; ++j) {
      const int64_t at_gate = r * 2 * F + j, at_up = at_gate + F;
      const N g = in[at_gate], u = in[at_up], dy = N(ds[r * F + j]) * N(w[r]), sigma = one / (one + exp(N(0.0) - g));
      forward.push_back(product(j) * N(w[r]));
      backward[at_gate] = dy * u * sigma * (one + g * (one - sigma));
      backward[at_up] = dy * g * sigma;
      const Dual gate(in[at_gate], 1);
      const Dual exact = gate * (Dual(1.0) / (Dual(1.0) + exp(Dual(0.0) - gate))) * Dual(in[at_up]) * Dual(w[r]);
      EXPECT_LE(std::abs(results[at_gate] - ds[r * F + j] * exact.d), (tolerance<T>(backward[at_gate]))) << "adjoint";
    }
    of_weights.push_back(sum<N>(F, [&](int64_t j) { return N(ds[r * F + j]) * product(j); }));
  }
  const Values made = act.read(s);
  expect_close<T>(made, forward, "act");
  expect_close<T>(results, backward, "d_gate_up");
  expect_close<A>(d_weights.read(s), of_weights, "d_weights");
  const Values before = d_weights.read(s);
  weighted_swiglu_backward<T>(s, gate_up.view(), weights.vector(), d.view(), gate_up.view(), d_weights.vector());
  EXPECT_TRUE(same_bits(gate_up.read(s), results) && same_bits(d_weights.read(s), before)) << "d_gate_up over gate_up";
  gate_up.write(in);
  act.write(Values(made.size(), 3));
  weighted_swiglu_backward<T>(s, gate_up.view(), weights.vector(), d.view(), gate_up.view(), d_weights.vector(),
                              act.view());
  EXPECT_TRUE(same_bits(gate_up.read(s), results) && same_bits(d_weights.read(s), before)) << "beside act";
  EXPECT_TRUE(same_bits(act.read(s), made)) << "act beside its gradient";
}

TEST(WeightedSwiglu, ForwardAndBackward) {
  for (const int64_t F : {1, 3, 17, 64, 127})
    for (const int64_t P : {1, 5}) {
      SCOPED_TRACE(testing::Message() << P << " x " << F);
      check_weighted_swiglu<double>(P, F);
      check_weighted_swiglu<float>(P, F);
      check_weighted_swiglu<bf16>(P, F);
    }
}

}  // namespace
}  // namespace forge
