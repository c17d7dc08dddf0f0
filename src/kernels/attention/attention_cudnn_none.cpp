#include "core/error.hpp"
#include "kernels/attention/attention_cudnn.hpp"

// What a build without cuDNN has in the place of attention_cudnn.cpp.

namespace forge {

struct CudnnAttention::Implementation {};

CudnnAttention::CudnnAttention(void*, std::size_t) {
  throw BadInput(
      "attention by cuDNN: this build has no cuDNN; legal: cuda_cores, tensor_cores on a GPU, or a build with "
      "FORGE_CUDNN");
}
CudnnAttention::~CudnnAttention() = default;
void CudnnAttention::forward(Stream&, const CudnnCall&, View<bf16, 3>, View<float, 2>) {}
void CudnnAttention::backward(Stream&, const CudnnCall&, const CudnnGradients&) {}
std::size_t CudnnAttention::graphs() const {
  return 0;
}

bool cudnn_built_in() {
  return false;
}
bool cudnn_is_preferred_here() {
  return false;
}

}  // namespace forge
