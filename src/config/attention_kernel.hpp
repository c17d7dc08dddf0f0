#pragma once

#include <array>

namespace forge {

// Which kernels compute attention on a GPU, but for generation. The CPU build has its own.
enum class AttentionKernel : int {
  automatic,     // tensor_cores where they compute the deck's attention, else cuda_cores; cudnn on GPUs from sm_100 on
  cuda_cores,    // every type: plain multiply-adds in fp32 or fp64
  tensor_cores,  // bf16 alone: products of bf16 with sums in fp32
  cudnn          // bf16 alone: cuDNN's where it has the deck's masks (model/cudnn_attention.hpp), else tensor_cores
};

// The words that FORGE_ATTENTION has for them, in this order.
inline constexpr std::array attention_kernel_words{"automatic", "cuda_cores", "tensor_cores", "cudnn"};
// Whether the kernel has bf16 alone, and no soft caps.
inline constexpr bool on_tensor_cores(AttentionKernel kernel) {
  return kernel == AttentionKernel::tensor_cores || kernel == AttentionKernel::cudnn;
}

}  // namespace forge
