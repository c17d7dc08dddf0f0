#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/gemm/gemm_packed.hpp"

namespace forge {

// oneDNN's matrix product of bf16 operands. Primitives are made once a shape (milliseconds for the first of each) and
// kept; their scratchpad lies in the caller's workspace.
class Bf16Matmul {
 public:
  // Whether the processor multiplies bf16 faster than fp32, by its features: AVX-512's dot products of bf16, or AMX
  // tiles.
  static bool fast();
  // Whether it has AMX tiles.
  static bool has_tiles();
  // Whether oneDNN has bf16 products for this processor at all (AVX-512).
  static bool available();

  Bf16Matmul();
  ~Bf16Matmul();
  Bf16Matmul(const Bf16Matmul&) = delete;
  Bf16Matmul& operator=(const Bf16Matmul&) = delete;

  // C = alpha · A · B + beta · C with sums in fp32; one stride of A and of B is 1; the rows of C are `pitch` apart.
  // False, and nothing done, when oneDNN has no implementation whose scratchpad fits into the workspace. TC: bf16,
  // float.
  template <class TC>
  bool operator()(int threads, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Operand<bf16> a,
                  Operand<bf16> b, float beta, TC* c, std::int64_t pitch, void* workspace, std::size_t workspace_bytes);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> impl_;
};

// fp32 through oneDNN's sgemm: C = alpha · op(A) · op(B) + beta · C, row-major, ld = elements between stored rows.
void library_sgemm(int threads, bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                   float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
                   float* c, std::int64_t ldc);

}  // namespace forge
