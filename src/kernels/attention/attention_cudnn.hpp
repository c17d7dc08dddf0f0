#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"
#include "kernels/attention/attention.hpp"

namespace forge {

// A call that cudnn_takes(), letters as in attention.hpp.
struct CudnnCall {
  const AttentionShape& shape;
  const AttentionMask& mask;
  View<const bf16, 3> q, k, v;
};
struct CudnnGradients {
  View<const bf16, 3> d_o, o;  // o: forward's
  View<const float, 2> lse;
  View<bf16, 3> d_q, d_k, d_v;
};

// Attention of bf16 by cuDNN's graphs, the same bits in every run. Keeps cuDNN's handle and
// the graphs of the calls that came last, each with the execution plan that cuDNN's heuristics put first: nothing is
// timed. A build without cuDNN (cudnn_built_in()) has none: the constructor throws BadInput.
class CudnnAttention {
 public:
  // The workspace is the caller's, for the life of this, and may serve others in the same stream.
  CudnnAttention(void* workspace, std::size_t workspace_bytes);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // lse as attention_forward() has it.
  void forward(Stream& stream, const CudnnCall& call, View<bf16, 3> o, View<float, 2> lse);
  // In parts that fit the workspace (cudnn_part() of model/cudnn_attention.hpp).
  void backward(Stream& stream, const CudnnCall& call, const CudnnGradients& gradients);

  // How many graphs it keeps; at most `most_graphs`.
  std::size_t graphs() const;
  static constexpr std::size_t most_graphs = 16;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> impl_;
};

bool cudnn_built_in();
// Whether attention of this GPU is cuDNN's where it is legal: forge has no fast kernels of its own from sm_100 on.
bool cudnn_is_preferred_here();

// Whether cuDNN computes a call with these operands: it is the call's kernel, the host knows the mask, queries
// and keys are the same rows, without dropout or a soft cap, and heads, rows and addresses are multiples of 16 bytes.
template <class... Operands>
bool cudnn_takes(const AttentionShape& shape, const Operands&... operands) {
  const auto aligned = [](const View<const bf16, 3>& x) {
    return x.extent(2) % 8 == 0 && x.pitch % 8 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
  };
  return shape.kernel == AttentionKernel::cudnn && shape.cudnn && shape.query_rows == shape.key_rows &&
         shape.query_rows > 1 && shape.sequences > 0 && shape.dropout == 0 && shape.soft_cap == 0 && shape.scale > 0 &&
         (aligned(operands) && ...);
}

}  // namespace forge
