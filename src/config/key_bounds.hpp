#pragma once

#include <cstdint>

namespace forge {

// Bounds of a model's dimensions in the deck: they keep every product of them (parameters, FLOPs, bytes) within 64
// bits.
inline constexpr std::int64_t most_layers = 10'000, most_width = 1'000'000, most_heads = 10'000, most_taps = 16,
                              most_ffn = 10'000'000, most_vocabulary = 100'000'000,
                              most_positions = std::int64_t{1} << 40;

// The most sequences of a batch, or of a validation.
inline constexpr std::int64_t most_sequences = std::int64_t{1} << 30;

// Limits of the values that routers' kernels keep of a row (kernels/experts/router_rows.cpp, permute.cpp).
inline constexpr std::int64_t most_expert_choices = 64, most_router_groups = 64;

}  // namespace forge
