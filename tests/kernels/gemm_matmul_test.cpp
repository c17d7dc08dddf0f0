#include "kernels/gemm/gemm_matmul.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "fixture.hpp"

// oneDNN's bf16 products, wherever oneDNN has them: the trainer takes them only where they are fast.

namespace forge {
namespace {

using reference::Field;
using reference::normal_values;

template <class TC>
void agrees_with_fp32(std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb, float alpha, float beta) {
  const Field<bf16> a(ta ? k : m, ta ? m : k, normal_values(m * k, 1), 2),
      b(tb ? n : k, tb ? k : n, normal_values(k * n, 2), 6);
  const Field<TC> c(m, n, normal_values(m * n, 3), 4);
  const Field<float> reference(m, n, c.read());
  const Operand<bf16> x{a.data(), ta ? 1 : a.pitch, ta ? a.pitch : 1}, y{b.data(), tb ? 1 : b.pitch, tb ? b.pitch : 1};
  packed_gemm<bf16, float>(1, m, n, k, alpha, x, y, beta, reference.data(), reference.pitch, nullptr, 0);
  const Buffer workspace(4 << 20);
  Bf16Matmul matmul;
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second time with the kept primitive
    const Field<TC> out(m, n, c.read(), 4);
    if (!matmul(2, m, n, k, alpha, x, y, beta, out.data(), out.pitch, workspace.data(), workspace.bytes())) {
      ASSERT_TRUE(m == 1 || n == 1);  // vectors with strides are left to others
      continue;
    }
    const auto expected = reference.read(), got = out.read();
    // Normal numbers: |A||B| is about k, its rounding in fp32 2 (k + 4) k u; then one rounding to the type of C.
    const double sums = 4.0 * std::abs(alpha) * static_cast<double>((k + 4) * k) / (1 << 24);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_LE(std::abs(got[i] - expected[i]), sums + (sizeof(TC) == 2 ? std::abs(expected[i]) / 128 : 0)) << i;
  }
}

TEST(Bf16Matmul, AgreesWithSumsInFp32) {
  if (!Bf16Matmul::available()) GTEST_SKIP() << "oneDNN has no bf16 products for this processor";
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const float beta : {0.0f, 1.0f, 0.5f}) {
        agrees_with_fp32<float>(33, 65, 130, ta, tb, 1.0f, beta);
        agrees_with_fp32<bf16>(64, 17, 96, ta, tb, 0.5f, beta);
        agrees_with_fp32<float>(1, 40, 3, ta, tb, 1.0f, beta);
        agrees_with_fp32<float>(3, 1, 8, ta, tb, 1.0f, beta);
      }
}

TEST(Bf16Matmul, IsFastOnlyWhereItIsAvailable) {
  EXPECT_TRUE(Bf16Matmul::available() || !Bf16Matmul::fast());
}

}  // namespace
}  // namespace forge
