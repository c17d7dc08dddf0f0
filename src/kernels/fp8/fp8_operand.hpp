#pragma once

#include <cstdint>
#include <span>

#include "core/array.hpp"
#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"
#include "fp8/codes.hpp"

namespace forge {

// Operands of products of 8-bit numbers as cuBLASLt reads them (Gemm::code_product). A build that computes on the CPU
// has none: there these end with an error.

// An operand's codes, and where the scale of each line and slot is found: amax[line's group · line_stride + slot's
// group · depth_stride].
struct Fp8Codes {
  View<const std::uint8_t, 2> codes;  // (lines, 128 · slots), 16-byte aligned
  ScaleLines lines;
  Fp8Slots slots;
  const float* amax = nullptr;
  std::int64_t line_stride = 0, depth_stride = 0;
  Fp8Format format{};
  bool exact = false;

  // The amax of a line's group and the first of the depth's groups.
  FORGE_INLINE const float* amax_of(std::int64_t line) const { return amax + lines.group_of(line) * line_stride; }
};

// 1 / scale of an operand's groups, in the order of factor_layout().
struct Fp8Factors {
  const float* values = nullptr;
  FactorLayout layout;

  const float* at(std::int64_t i) const { return values + i * layout.each(); }
};

// x(R,N), an operand of a product of codes: its rows become lines, or, with sums_rows, its columns.
struct Fp8Input {
  View<const bf16, 2> x;
  ScaledOperand operand;
  bool sums_rows;
  View<const float, 1> amax;
  View<std::uint8_t, 1> memory;  // code_bytes(operand, sums_rows)
  // seen(1) ← max(seen, largest |x|), without rows of filler, −1 in samples(R); empty: not asked for; must be empty for
  // columns.
  View<float, 1> seen = {};
  View<const std::int64_t, 1> samples = {};
  bool made = false;  // another kernel writes its codes (RowCodes): it gets factors alone
};
struct Fp8Encoded {
  Fp8Codes codes;
  Fp8Factors factors;
};
// Both operands of a product.
struct CodeOperands {
  Fp8Encoded a, b;
};

// The codes of a and b of a product or, behind one another, of two, encode(x · scale) as fp8_round() has them, and the
// inverses of their scales: in one launch. `factors` has as many as all factor_layout() count. sm_89.
Array<CodeOperands, 2> fp8_encode(Stream&, std::span<const Fp8Input> operands, bool exact, CodeScaling scaling,
                                  View<float, 1> factors);

// CUBLAS_VERSION of this build; 0 on the CPU.
int cublas_version();

}  // namespace forge
