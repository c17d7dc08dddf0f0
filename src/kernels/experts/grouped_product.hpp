#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// Products of groups of rows (the experts of a layer) by tensor cores, all groups in one launch, of the CUDA
// build. Gemm has them on the CPU, and of every type one product a group.

// Where the rows of groups begin, in the memory of the device: the operands' rows are the places [begin, end) of an
// order that `offsets` cuts into groups.
struct RowGroups {
  std::int64_t count = 0;
  const std::int64_t* offsets = nullptr;  // (count + 1), ascending
  std::int64_t begin = 0, end = 0;

  std::int64_t rows() const { return end - begin; }
  // The first of the operands' rows that is of group g; of group `count`, the first behind them all.
  FORGE_INLINE std::int64_t begin_of(std::int64_t g) const {
    const std::int64_t at = offsets[g];
    return (at < begin ? begin : at < end ? at : end) - begin;
  }
};

// bf16 in, sums in fp32. A tile of a result is computed by one block in one order: the same bits in every run. Rows of
// no group are left alone.
//   grouped_rows, weights_by_rows:  C(rows of g, N) = or += alpha A(rows of g, K) B_gᵀ, B(G, N, K): y = x Wᵀ
//   grouped_rows, else:             C(rows of g, N) = or += alpha A(rows of g, K) B_g,  B(G, K, N): dx = dy W
//   grouped_sums:                   C_g(M, N) = or += A(rows of g, M)ᵀ B(rows of g, N), C(G, M, N): dW += dyᵀ x
void grouped_rows(Stream&, const RowGroups&, bool weights_by_rows, View<const bf16, 2> a, View<const bf16, 3> b,
                  View<bf16, 2> c, double alpha = 1, bool adds = false);
void grouped_sums(Stream&, const RowGroups&, View<const bf16, 2> a, View<const bf16, 2> b, bool adds, View<float, 3> c);

}  // namespace forge
