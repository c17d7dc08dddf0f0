#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hf/safetensors.hpp"

namespace forge {

// Weights in FP8 as the files of DeepSeek-V3 have them (arXiv:2412.19437, 3.3; DeepSeek-AI/DeepSeek-V3, "FP8 weights"):
// beside a tensor <name>.weight (m, n) of type F8_E4M3 stands <name>.weight_scale_inv, F32, with a number for each
// block of 128 x 128, padding at the ends:
//   value[i, j] = code[i, j] · scale_inv[i / 128, j / 128]

inline constexpr std::int64_t scale_block = 128;
inline constexpr const char* code_type = "F8_E4M3";

std::string scale_name(const std::string& weight);
// (ceil(m / 128), ceil(n / 128)).
std::vector<std::int64_t> scale_shape(const std::vector<std::int64_t>& weight);

// The error of a tensor as a weight: its type, scales that are missing, of another type or shape, or of a weight that
// isn't in FP8; "": none. `coded`: config.json says that weights are in FP8.
std::string weight_problem(const TensorFiles& files, const TensorInfo& weight, bool coded);

// Like TensorFiles::read, also for weights in FP8: their values, rounded once to the type of `out`. Reads only those
// rows of scales that the elements need, or in one row of the weight the columns. Throws BadInput where a code or a
// scale isn't finite, or a scale is negative.
template <class A>
void read_weight(const TensorFiles& files, const TensorInfo& weight, std::span<A> out, std::int64_t first = 0);

// A matrix (rows, columns) with a scale for each block: the largest power of two with amax · scale <= 448, of which
// `scale_inv` is the inverse, so that values are exact in bf16. Throws BadInput, which names the tensor, where a value
// isn't finite.
struct BlockScaled {
  std::vector<std::uint8_t> codes;
  std::vector<float> scale_inv;
};
BlockScaled block_scaled(const std::string& name, std::span<const float> values, std::int64_t rows,
                         std::int64_t columns);

}  // namespace forge
