#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

enum class Transpose { no, yes };

struct RowGroups;
struct CodeOperands;
enum class CodeScaling;

// Matrix products of one rank. Keeps the libraries' handles and primitives (made once a shape) and one fixed workspace
// that the caller allocates; a library may only choose algorithms that fit into it.
//   fp64: plain tiled loops on the CPU, cuBLAS on CUDA; fp32: oneDNN, cuBLASLt; bf16: oneDNN where the processor has
//   AVX-512's dot products of bf16 or AMX, else both operands are converted to fp32 in pieces that fit the workspace;
//   cuBLASLt.
class Gemm {
 public:
  // spared: multiprocessors of a GPU for which cuBLASLt and CUTLASS choose no blocks, as communication holds them.
  Gemm(void* workspace, std::size_t workspace_bytes, bool cutlass = false, int spared = 0);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // C(M,N) = alpha · op(A)(M,K) · op(B)(K,N) + beta · C, row-major; pitches are respected. beta 0 never reads C.
  // Types of A and B, and of C: double, double; float, float; bf16, bf16; bf16, float (weight gradients, logits).
  template <class T, class TC>
  void operator()(Stream& stream, Transpose ta, Transpose tb, double alpha, View<const T, 2> a, View<const T, 2> b,
                  double beta, View<TC, 2> c);

  // Products of groups of rows (the experts of a layer), group g being the rows [offsets[g], offsets[g+1]) of the first
  // operand: `offsets` (G+1) are on the host, ascending; rows of no group are left alone, and a group without rows
  // costs nothing. Types as above.
  //   grouped_rows:  C(rows of g) = alpha · A(rows of g) · op(B_g) + beta · C(rows of g), with B(G, ., .):
  //                  y = x Wᵀ, dx = dy W
  //   grouped_sums:  C_g = alpha · A(rows of g)ᵀ · B(rows of g) + beta · C_g, with C(G, M, N): dW += dyᵀ x
  // CPU: tiles of C, cut by the shapes alone, are shared out among the threads and each computed by one of them, so
  // that no bits depend on the number of threads, fp32 (oneDNN's sgemm on one thread) included. CUDA: one product a
  // group.
  template <class T, class TC>
  void grouped_rows(Stream& stream, std::span<const std::int64_t> offsets, Transpose tb, double alpha,
                    View<const T, 2> a, View<const T, 3> b, double beta, View<TC, 2> c);
  template <class T, class TC>
  void grouped_sums(Stream& stream, std::span<const std::int64_t> offsets, double alpha, View<const T, 2> a,
                    View<const T, 2> b, double beta, View<TC, 3> c);
  // Likewise of groups of one height, the chunks of a recurrence; CUDA: all of them in one launch. fp64, fp32.
  template <class T>
  void batched_rows(Stream& stream, std::int64_t height, Transpose tb, double alpha, View<const T, 2> a,
                    View<const T, 3> b, double beta, View<T, 2> c);
  template <class T>
  void batched_sums(Stream& stream, std::int64_t height, double alpha, View<const T, 2> a, View<const T, 2> b,
                    double beta, View<T, 3> c);
  // The same products, of groups whose beginnings the stream finds when it gets there
  // (kernels/experts/grouped_product.hpp), so that the host needn't know: C = or += alpha A op(B_g), T and T; C_g = or
  // += Aᵀ B, T and acc_t<T>. CUDA: bf16 alone, by tensor cores; else Error. With `cutlass`, by that library's kernels
  // where it has them (kernels/experts/grouped_cutlass.hpp).
  template <class T>
  void grouped_rows(Stream& stream, const RowGroups& groups, Transpose tb, View<const T, 2> a, View<const T, 3> b,
                    View<T, 2> c, double alpha = 1, bool adds = false);
  template <class T>
  void grouped_sums(Stream& stream, const RowGroups& groups, View<const T, 2> a, View<const T, 2> b, bool adds,
                    View<acc_t<T>, 3> c);

  // C(m,n) = or += Σ_s Σ_k A(m,k) B(n,k) / (scale_a(m,s) scale_b(n,s)) over the slots s of the depth and the 128 k of
  // each, by cuBLASLt's products of 8-bit numbers: one for each run of rows, and of the depth, with the same two scales
  // where scales are of a whole tensor. A group whose amax is Inf makes its lines NaN. The codes have the formats of
  // CodeOperands; C is one that cublaslt_takes(). CUDA, where multiplies_codes() there. TC: bf16, float.
  template <class TC>
  void code_product(Stream& stream, const CodeOperands& operands, CodeScaling scaling, bool adds, View<TC, 2> c);

  // The caller's workspace. Nothing uses it between two products.
  std::span<std::byte> workspace() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> impl_;
};

}  // namespace forge
