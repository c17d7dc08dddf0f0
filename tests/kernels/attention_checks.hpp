#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention_case.hpp"

namespace forge::reference {

// A type, and the kernels that compute in it. The CPU build has one kernel for each type.
template <class T, AttentionKernel kernel_, bool aligned_ = on_tensor_cores(kernel_)>
struct Computed {
  using Type = T;
  static constexpr AttentionKernel kernel = kernel_;
  static constexpr bool aligned = aligned_;  // rows begin at multiples of 16 bytes, as tensor cores like them
};

using Types = testing::Types<
#if defined(FORGE_CUDA)
    Computed<bf16, AttentionKernel::tensor_cores>,
#endif
    Computed<double, AttentionKernel::cuda_cores>, Computed<float, AttentionKernel::cuda_cores>,
    Computed<bf16, AttentionKernel::cuda_cores>>;

// Runs both passes: o, lse and the three gradients, to be compared to the bit.
template <class T>
std::vector<std::vector<double>> results_of(Case<T>& c) {
  c.run_forward();
  c.run_backward();
  const Gradients d = c.gradients();
  return {c.o.read(c.stream).values, c.lse.read(c.stream).values, d.q.values, d.k.values, d.v.values};
}

// |got − want| <= relative · magnitude, everywhere. NaN fails.
inline void expect_close(const Heads& got, const Heads& want, const Heads& magnitude, double relative,
                         const char* what) {
  for (std::size_t i = 0; i < want.values.size(); ++i)
    ASSERT_LE(std::abs(got.values[i] - want.values[i]), relative * magnitude.values[i]) << what << " " << i;
}

inline void expect_close(const Gradients& got, const Backward& want, double relative) {
  expect_close(got.q, want.value.q, want.magnitude.q, relative, "d_q");
  expect_close(got.k, want.value.k, want.magnitude.k, relative, "d_k");
  expect_close(got.v, want.value.v, want.magnitude.v, relative, "d_v");
}

inline void expect_lse(const Heads& got, const Heads& want, double error) {
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    if (std::isinf(want.values[i])) {
      ASSERT_EQ(got.values[i], want.values[i]) << "lse " << i;
    } else {
      ASSERT_LE(std::abs(got.values[i] - want.values[i]), error) << "lse " << i;
    }
  }
}

inline std::string text(const Sizes& n) {
  return "B " + std::to_string(n.B) + " Tq " + std::to_string(n.Tq) + " Tk " + std::to_string(n.Tk) + " H " +
         std::to_string(n.H) + " K " + std::to_string(n.K) + " D " + std::to_string(n.D) + " Dv " +
         std::to_string(n.Dv) + " window " + std::to_string(n.window) + (n.documents ? " documents" : "") +
         " dropout " + std::to_string(n.dropout);
}

// Forward and backward against the reference.
template <class C>
void check(Sizes n) {
  using T = typename C::Type;
  SCOPED_TRACE(text(n));
  n.kernel = C::kernel;
  n.aligned = C::aligned;
  n.in_order = n.first_position == 0;
  Case<T> c(n);
  c.run_forward();
  c.run_backward();
  const Forward want = forward(c.in);
  const double relative = relative_error<T>(n, want.score_magnitude);
  expect_close(c.o.read(c.stream), want.o, want.o_magnitude, relative, "o");
  expect_lse(c.lse.read(c.stream), want.lse, relative_error<acc_t<T>>(n, want.score_magnitude));
  expect_close(c.gradients(), backward(c.in, c.d_o, want.o, want.lse), relative);
}

}  // namespace forge::reference
