#pragma once

#include <cstdint>

#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"
#include "kernels/grouped_product.hpp"
#include "model/fp8_codes.hpp"

namespace forge {

// Products of 8-bit operands by tensor cores (machine.fp8_products: tensor_cores), of the CUDA build, and what cuBLASLt
// reads for its own of the same codes (Gemm::fp8_product). A build that computes on the CPU has none: there these end
// with an error.

// An operand's codes, and where the scale of each line and slot is found: amax[line's group · line_stride + slot's
// group · depth_stride]. Of several matrices, whose lines stand one below the other, each has such amaxes of its own.
struct Fp8Codes {
  View<const std::uint8_t, 2> codes;  // (lines, 128 · slots), 16-byte aligned
  ScaleLines lines;
  Fp8Slots slots;
  const float* amax = nullptr;
  std::int64_t line_stride = 0, depth_stride = 0;
  std::int64_t matrix_lines = 0, matrix_groups = 0;  // of each matrix
  Fp8Format format{};
  bool exact = false;

  // The amax of a line's group and the first of the depth's groups.
  FORGE_INLINE const float* amax_of(std::int64_t line) const {
    const auto each = static_cast<std::uint32_t>(matrix_lines), at = static_cast<std::uint32_t>(line);
    const std::int64_t matrix = at / each;
    return amax + matrix * matrix_groups + lines.group_of(line - matrix * matrix_lines) * line_stride;
  }
};

// The codes of x(matrices · R, N), encode(x · scale) as fp8_round() has them, in `memory` of matrices ·
// code_bytes(operand, sums_rows) bytes: rows of each (R, N) become lines, or, with sums_rows, its columns.
Fp8Codes fp8_encode(Stream&, View<const bf16, 2> x, const ScaledOperand& operand, bool sums_rows, bool exact,
                    View<const float, 1> amax, View<std::uint8_t, 1> memory, std::int64_t matrices = 1);

// C(m,n) = or += Σ_s Σ_k A(m,k) B(n,k) / (scale_a(m,s) scale_b(n,s)) over the slots s of the depth and the 128 k of
// each: products of codes are exact, those of a slot are summed by the tensor cores, and slots, divided by their
// scales, in fp32 (DeepSeek-V3, arXiv:2412.19437, 3.3.2). A group whose amax is Inf makes its lines NaN. A is E4M3 or
// E5M2, B E4M3; TC bf16 or float. sm_89.
template <class TC>
void fp8_product(Stream&, const Fp8Codes& a, const Fp8Codes& b, bool adds, View<TC, 2> c);

// C(rows of g, n) = the same of A's lines that are rows of g and of b's g-th matrix, all groups in one launch. Rows of
// no group are left alone.
void fp8_grouped_rows(Stream&, const RowGroups&, const Fp8Codes& a, const Fp8Codes& b, View<bf16, 2> c);

// 1 / scale of an operand's groups, in the order of factor_layout(), whose count `memory` has at least.
struct Fp8Factors {
  const float* values = nullptr;
  FactorLayout layout;

  const float* at(std::int64_t i) const { return values + i * layout.each(); }
};
Fp8Factors fp8_factors(Stream&, const Fp8Codes& of, Fp8Scaling scaling, View<float, 1> memory);

}  // namespace forge
