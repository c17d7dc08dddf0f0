#include "fixture.hpp"
#include "kernels/kernels.hpp"

namespace forge {
namespace {

using namespace reference;

template <class N>
N sigmoid(N x) {
  return N(1.0) / (N(1.0) + exp(N(0.0) - x));
}

template <class N>
N activation(Pointwise which, N x) {
  const N half = 0.5, one = 1.0;
  switch (which) {
    case Pointwise::gelu:
      return half * x * (one + erf(x * constant<N>(std::sqrt(0.5))));
    case Pointwise::gelu_tanh:
      return half * x * (one + tanh(constant<N>(std::sqrt(2 / M_PI)) * (x + constant<N>(0.044715) * x * x * x)));
    case Pointwise::relu2:
      return value(x) < 0 ? N(0.0) : x * x;
  }
  return x;
}

// The derivative in the form that the kernels use, for the bound of its rounding.
template <class N>
N slope(Pointwise which, N x) {
  const N half = 0.5, one = 1.0;
  switch (which) {
    case Pointwise::gelu:
      return half * (one + erf(x * constant<N>(std::sqrt(0.5)))) +
             x * (constant<N>(1 / std::sqrt(2 * M_PI)) * exp(N(-0.5) * x * x));
    case Pointwise::gelu_tanh: {
      const N c = constant<N>(std::sqrt(2 / M_PI));
      const N t = tanh(c * (x + constant<N>(0.044715) * x * x * x));
      return half * (one + t) + half * x * (one - t * t) * (c * (one + constant<N>(3 * 0.044715) * x * x));
    }
    case Pointwise::relu2:
      return value(x) < 0 ? N(0.0) : N(2.0) * x;
  }
  return x;
}

const std::int64_t columns[] = {1, 3, 17, 64, 127};
const std::int64_t rows[] = {1, 5};
const Pointwise kinds[] = {Pointwise::gelu, Pointwise::gelu_tanh, Pointwise::relu2};

template <class T>
void check_pointwise(Pointwise which, std::int64_t R, std::int64_t C) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  Field<T> x(R, C, normal_values(R * C, 1, 2), 3), d(R, C, normal_values(R * C, 2), 1), y(R, C, 2), dx(R, C, 4);
  Stream s(2);
  pointwise_forward<T>(s, which, x.view(), y.view());
  pointwise_backward<T>(s, which, x.view(), d.view(), dx.view());
  const Values xs = x.read(s), ds = d.read(s), results = dx.read(s);
  std::vector<N> forward, backward;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    forward.push_back(activation<N>(which, xs[i]));
    backward.push_back(N(ds[i]) * slope<N>(which, xs[i]));
    const double exact = ds[i] * activation(which, Dual(xs[i], 1)).d;  // J is diagonal: element by element
    EXPECT_LE(std::abs(results[i] - exact), (tolerance<T>(backward.back()))) << "adjoint at " << i;
  }
  expect_close<T>(y.read(s), forward, "act");
  expect_close<T>(results, backward, "dx");
  const Values act = y.read(s);
  y.write(Values(act.size(), 3));
  dx.write(Values(act.size(), 3));
  pointwise_backward<T>(s, which, x.view(), d.view(), dx.view(), {}, y.view());
  EXPECT_TRUE(same_bits(y.read(s), act) && same_bits(dx.read(s), results)) << "act beside its gradient";
  pointwise_backward<T>(s, which, x.view(), d.view(), x.view());
  EXPECT_TRUE(same_bits(x.read(s), results)) << "dx over x";
  x.write(xs);
  pointwise_backward<T>(s, which, x.view(), d.view(), d.view());
  EXPECT_TRUE(same_bits(d.read(s), results)) << "dx over d_act";
}

template <class T>
void check_gated(Gate kind, std::int64_t R, std::int64_t F) {
  using A = acc_t<T>;
  using N = Tracked<A>;
  Field<T> gate_up(R, 2 * F, normal_values(2 * R * F, 1, 2), 3), act(R, F, 1), d(R, F, normal_values(R * F, 2), 2),
      d_gate_up(R, 2 * F, 5);
  Stream s(2);
  swiglu_forward<T>(s, gate_up.view(), act.view(), {}, kind);
  swiglu_backward<T>(s, gate_up.view(), d.view(), d_gate_up.view(), {}, {}, kind);
  const Values in = gate_up.read(s), ds = d.read(s), results = d_gate_up.read(s);
  std::vector<N> forward, backward(in.size());
  const N one = 1.0;
  const bool silu = kind.kind == Gate::silu, clamped = kind.kind == Gate::clamped;
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t j = 0; j < F; ++j) {
      const std::int64_t at_gate = r * 2 * F + j, at_up = at_gate + F;
      if (clamped) {
        const bool open = in[at_gate] <= kind.limit, between = std::abs(in[at_up]) <= kind.limit;
        const N alpha = A(kind.alpha), g = open ? in[at_gate] : A(kind.limit), dy = ds[r * F + j],
                u = (between ? N(in[at_up]) : N(std::copysign(A(kind.limit), A(in[at_up])))) + one;
        const N sigma = sigmoid(alpha * g);
        forward.push_back(g * sigma * u);
        backward[at_gate] = open ? dy * u * sigma * (one + alpha * g * (one - sigma)) : N(0.0);
        backward[at_up] = between ? dy * (g * sigma) : N(0.0);
        continue;
      }
      const N g = in[at_gate], u = in[at_up], dy = ds[r * F + j], sigma = sigmoid(g);
      const N value = silu ? g * sigma : activation(Pointwise::gelu_tanh, g);
      forward.push_back(value * u);
      backward[at_gate] =
          silu ? dy * u * sigma * (one + g * (one - sigma)) : dy * u * slope<N>(Pointwise::gelu_tanh, g);
      backward[at_up] = dy * value;
      const Dual gate(in[at_gate], 1), opened = silu ? gate * sigmoid(gate) : activation(Pointwise::gelu_tanh, gate);
      const double exact = ds[r * F + j] * (opened * Dual(in[at_up])).d;
      EXPECT_LE(std::abs(results[at_gate] - exact), (tolerance<T>(backward[at_gate]))) << "adjoint";
    }
  const Values made = act.read(s);
  expect_close<T>(made, forward, "act");
  expect_close<T>(results, backward, "d_gate_up");
  act.write(Values(made.size(), 3));
  swiglu_backward<T>(s, gate_up.view(), d.view(), gate_up.view(), {}, act.view(), kind);
  EXPECT_TRUE(same_bits(gate_up.read(s), results)) << "d_gate_up over gate_up";
  EXPECT_TRUE(same_bits(act.read(s), made)) << "act beside its gradient";
  gate_up.write(in);
  swiglu_backward<T>(s, gate_up.view(), d.view(), gate_up.view(), {}, {}, kind);
  EXPECT_TRUE(same_bits(gate_up.read(s), results)) << "d_gate_up over gate_up, without act";
}

template <class T>
void check_all() {
  for (const auto C : columns)
    for (const auto R : rows) {
      SCOPED_TRACE(::testing::Message() << R << " x " << C);
      for (const auto which : kinds) check_pointwise<T>(which, R, C);
      for (const Gate& kind : {Gate(Gate::silu), Gate(Gate::gelu_tanh), Gate(Gate::clamped, 0.5, 1.75)})
        check_gated<T>(kind, R, C);
    }
}

TEST(Activations, fp64) {
  check_all<double>();
}
TEST(Activations, fp32) {
  check_all<float>();
}
TEST(Activations, bf16) {
  check_all<bf16>();
}

TEST(Activations, limits_and_nan) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Values in{-1000, -90, -0.0, 0.0, 90, 1000, inf, nan};
  Stream s;
  for (const auto which : kinds) {
    Field<float> x(1, 8, in), y(1, 8), d(1, 8, Values(8, 1.0)), dx(1, 8);
    pointwise_forward<float>(s, which, x.view(), y.view());
    pointwise_backward<float>(s, which, x.view(), d.view(), dx.view());
    const Values out = y.read(s), slopes = dx.read(s);
    const bool square = which == Pointwise::relu2;
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(out[1], 0);
    EXPECT_EQ(out[2], 0);
    EXPECT_EQ(out[3], 0);
    EXPECT_EQ(out[4], square ? 8100 : 90);
    EXPECT_EQ(out[5], square ? 1e6 : 1000);
    EXPECT_EQ(out[6], inf);
    EXPECT_TRUE(std::isnan(out[7]));
    EXPECT_EQ(slopes[1], 0);
    EXPECT_EQ(slopes[4], square ? 180 : 1);
    EXPECT_TRUE(std::isnan(slopes[7]));
  }
  Field<float> gate_up(1, 4, Values{-1000, nan, 1, 1}), act(1, 2), d(1, 2, Values{1, 1}), d_gate_up(1, 4);
  swiglu_forward<float>(s, gate_up.view(), act.view());
  swiglu_backward<float>(s, gate_up.view(), d.view(), d_gate_up.view());
  EXPECT_EQ(act.read(s)[0], 0);
  EXPECT_TRUE(std::isnan(act.read(s)[1]));
  EXPECT_EQ(d_gate_up.read(s)[0], 0);
  EXPECT_TRUE(std::isnan(d_gate_up.read(s)[1]));
}

TEST(Activations, any_number_of_threads_gives_the_same_bits) {
  expect_same_on_any_threads([&](Stream& s) {
    Field<float> gate_up(33, 254, normal_values(33 * 254, 1)), act(33, 127), d_gate_up(33, 254);
    swiglu_forward<float>(s, gate_up.view(), act.view());
    swiglu_backward<float>(s, gate_up.view(), act.view(), d_gate_up.view());
    pointwise_forward<float>(s, Pointwise::gelu, act.view(), act.view());
    s.synchronize();
    Values all = act.read(s);
    append(all, d_gate_up.read(s));
    return all;
  });
}

}  // namespace
}  // namespace forge
