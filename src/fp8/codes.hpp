#pragma once

#include <cstdint>
#include <string>

#include "core/to_size.hpp"
#include "core/view.hpp"
#include "fp8/scaled_product.hpp"

namespace forge {

// How the codes of an operand stand where a product of 8-bit numbers reads them: a row of codes for each row of the
// result (`lines`), with the numbers that are multiplied and summed (`depth`) behind one another, in slots of 128. A
// group of scales begins a new slot, and zeros fill its last one, so that every 128 products have one pair of scales.

// The slots of an operand's depth. Part p of the lines that share scales has the slots from first[p] on: front[p] of
// them for its first group, whose end alone this rank may have, and `each` for every later one.
struct Fp8Slots {
  struct Lines {
    std::int64_t group, begin, end;  // a slot's lines of the depth
  };
  ScaleLines depth;
  std::int32_t each = 1;
  std::int32_t first[4] = {0, 0, 0, 0}, front[3] = {0, 0, 0}, group[3] = {0, 0, 0};  // first[3]: all slots

  std::int64_t count() const { return first[3]; }
  FORGE_INLINE std::int64_t group_of(std::int32_t slot) const {
    const int p = part_of(slot);
    const auto behind = static_cast<std::uint32_t>(slot - first[p]), cut = static_cast<std::uint32_t>(front[p]);
    return behind < cut ? group[p] : group[p] + 1 + (behind - cut) / static_cast<std::uint32_t>(each);
  }
  FORGE_INLINE Lines lines_of(std::int32_t slot) const {
    const int p = part_of(slot);
    const std::int64_t g = group_of(slot);
    const auto behind = static_cast<std::uint32_t>(slot - first[p] - front[p]);
    const std::int64_t within = g == group[p] ? slot - first[p] : behind % static_cast<std::uint32_t>(each);
    const ScaleLines::Range all = depth.lines_of(g);
    const std::int64_t begin = all.begin + within * scale_width, end = begin + scale_width;
    return {g, begin, end < all.end ? end : all.end};
  }

 private:
  FORGE_INLINE int part_of(std::int32_t slot) const {
    return depth.parts > 2 && slot >= first[2] ? 2 : depth.parts > 1 && slot >= first[1] ? 1 : 0;
  }
};
Fp8Slots fp8_slots(const ScaleLines& depth);

// Whether the depth of a product's first and second operand are its rows as they stand in memory.
inline bool sums_rows_of_a(ProductOf of) {
  return of == ProductOf::weight_gradient;
}
inline bool sums_rows_of_b(ProductOf of) {
  return of != ProductOf::output;
}

// Whether runs multiply codes on devices of this compute capability (90 of sm_90; 0: processors): where cuBLASLt has
// products of E4M3, or of E5M2 with it, with the recipe's scales. Those of a whole operand it has from sm_89 on, those
// of lines and slots on sm_90 alone ("Narrow Precision Data Types Usage" of its documentation, CUDA 13). Elsewhere
// rounded numbers are multiplied.
bool multiplies_codes(const Deck& deck, int capability);

// Why a cuBLASLt of this version (CUBLAS_VERSION; 0: a build without) has no products with the recipe's scales: those
// of lines and slots came with CUDA 12.9. "": it has.
std::string refusal_of_scales(Fp8Recipe recipe, int cublas_version);

// How many scales a product has where cuBLASLt computes it: one for each operand, or rather for each run of rows and of
// the depth that shares one; one for each line; one for each slot of each line, or of 128 lines.
enum class CodeScaling { tensor, line, slot };
CodeScaling code_scaling(Fp8Recipe recipe);
// The order of an operand's 1 / scale as cuBLASLt reads them ("128-element 1D and 128x128 2D Block Scaling" of its
// documentation): (groups of lines, groups of the depth); (lines); (slots, lines); (blocks of 128 lines, slots filled
// up to a multiple of 4).
enum class FactorOrder : std::uint8_t { groups, lines, slots, blocks };
struct FactorLayout {
  FactorOrder order;
  std::int64_t rows, columns;

  // Floats from one factor to the next: the one of a whole operand has to stand at a multiple of 16 bytes, as an H100's
  // cuBLASLt 13.1 refuses it elsewhere, though its documentation asks for this in the other modes alone.
  FORGE_INLINE std::int64_t each() const { return order == FactorOrder::groups ? 4 : 1; }
  // Floats, filled up to 16 bytes.
  std::int64_t count() const { return (rows * columns * each() + 3) / 4 * 4; }
};
FactorLayout factor_layout(std::int64_t line_count, const ScaleLines& lines, const Fp8Slots& slots,
                           CodeScaling scaling);
// Whether cuBLASLt takes a product C(m,n) of codes, where C and its rows begin at multiples of 16 bytes: scales of
// slots ask for a multiple of 4 rows. PyTorch asks for 16 columns of it, and so does this.
inline bool cublaslt_takes(CodeScaling scaling, std::int64_t m, std::int64_t n) {
  return n % 16 == 0 && (scaling != CodeScaling::slot || m % 4 == 0);
}
template <class TC>
bool cublaslt_takes(CodeScaling scaling, const View<TC, 2>& c) {
  return cublaslt_takes(scaling, c.rows(), c.columns()) && reinterpret_cast<std::uintptr_t>(c.data) % 16 == 0 &&
         to_size(c.pitch) * sizeof(TC) % 16 == 0;
}

// Whether one launch makes the codes of two products, as the scales of all their operands are known before: of the
// gradients of two weights, or of one product and the next, whose first operand a kernel between them makes.
inline bool joins_codes(const RoundingOptions& rounding, ProductOf of) {
  return of == ProductOf::weight_gradient ? code_scaling(rounding.recipe) == CodeScaling::tensor
                                          : rounding.has_history();
}

// Bytes of an operand's codes.
inline std::int64_t code_bytes(const ScaledOperand& x, bool sums_rows) {
  return (sums_rows ? x.columns : x.rows) * scale_width * fp8_slots(sums_rows ? x.by_row : x.by_column).count();
}
// Adds to a product of codes: the bytes of both operands', and their factors, of the arguments of scaled_product().
void add_code_bytes(ScaledProduct& p, const BufferContext& c, ProductOf of, std::int64_t rows, const MatrixSplit& w);

}  // namespace forge
