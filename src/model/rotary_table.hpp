#pragma once

#include <cstdint>
#include <vector>

#include "model/spec.hpp"

namespace forge {

// Rotary frequencies θ^(−2i/D), i < D/2, after the model's scaling: linear (Chen et al. 2023), llama3 (Llama 3.1's
// config), yarn (Peng et al. 2023), longrope (Ding et al. 2024), whose divisors depend on the `positions` of a
// sequence. `attention_factor` multiplies cosine and sine (yarn, longrope; else 1).
struct RotaryFrequencies {
  std::vector<double> inverse;  // (D/2)
  double attention_factor = 1;
};
// The frequencies of base 0; of base 1 (rotary_bases()): θ = rope_window_theta, without scaling. `positions`: of a
// sequence.
RotaryFrequencies rotary_frequencies(const ModelSpec& spec, std::int64_t base = 0, std::int64_t positions = 0);

// cosine, sine: (positions, D/2), row-major, in double; of several tables one below the other. A table of queries is
// multiplied by 1 + β ln(1 + ⌊position / rope_original_positions⌋), β = query_position_scale (Llama 4).
struct RotaryTable {
  std::vector<double> cosine, sine;
};
RotaryTable rotary_table(const ModelSpec& spec, std::int64_t positions);

}  // namespace forge
