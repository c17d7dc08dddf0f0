#include "model/rotary_table.hpp"

#include "core/to_size.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace forge {

namespace {

// Long wavelengths are stretched by the factor, short ones stay, those between are blended.
void scale_llama3(const ModelDeck& o, std::vector<double>& inverse) {
  const double original = static_cast<double>(o.rope_original_positions);
  const double low = original / o.rope_low_frequency_factor, high = original / o.rope_high_frequency_factor;
  for (double& f : inverse) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength > low) {
      f /= o.rope_factor;
    } else if (wavelength >= high) {
      const double smooth = (original / wavelength - o.rope_low_frequency_factor) /
                            (o.rope_high_frequency_factor - o.rope_low_frequency_factor);
      f = (1 - smooth) * f / o.rope_factor + smooth * f;
    }
  }
}

// The dimension whose wave has `rotations` periods over the original context.
double yarn_dimension(const ModelSpec& spec, double rotations) {
  const ModelDeck& o = spec.options;
  return static_cast<double>(spec.rotary_dim()) *
         std::log(static_cast<double>(o.rope_original_positions) / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(o.rope_theta));
}

// Interpolated below the correction range, extrapolated above it, a ramp between.
void scale_yarn(const ModelSpec& spec, std::vector<double>& inverse) {
  const ModelDeck& o = spec.options;
  double low = yarn_dimension(spec, o.rope_beta_fast), high = yarn_dimension(spec, o.rope_beta_slow);
  if (o.rope_truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(spec.rotary_dim() - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] = inverse[i] / o.rope_factor * ramp + inverse[i] * (1 - ramp);
  }
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double yarn_attention_factor(const ModelDeck& o) {
  if (o.rope_attention_factor > 0) return o.rope_attention_factor;
  if (o.rope_mscale > 0 && o.rope_mscale_all_dim > 0)
    return yarn_mscale(o.rope_factor, o.rope_mscale) / yarn_mscale(o.rope_factor, o.rope_mscale_all_dim);
  return yarn_mscale(o.rope_factor, 1);
}

// Each frequency by a divisor of its own, which sequences longer than the original context have others of.
void scale_longrope(const ModelDeck& o, std::int64_t positions, std::vector<double>& inverse) {
  const std::vector<double>& divisors =
      positions > o.rope_original_positions ? o.rope_long_factor : o.rope_short_factor;
  for (std::size_t i = 0; i < inverse.size(); ++i) inverse[i] /= divisors.at(i);
}

double longrope_attention_factor(const ModelDeck& o) {
  if (o.rope_attention_factor > 0) return o.rope_attention_factor;
  if (o.rope_factor <= 1) return 1;
  return std::sqrt(1 + std::log(o.rope_factor) / std::log(static_cast<double>(o.rope_original_positions)));
}

double query_scale(const ModelDeck& o, std::int64_t position) {
  const std::int64_t times = position / o.rope_original_positions;
  return 1 + o.query_position_scale * std::log1p(static_cast<double>(times));
}

}  // namespace

RotaryFrequencies rotary_frequencies(const ModelSpec& spec, std::int64_t base, std::int64_t positions) {
  const ModelDeck& o = spec.options;
  RotaryFrequencies result;
  const std::int64_t dim = spec.rotary_dim();
  const double theta = base > 0 ? o.rope_window_theta : o.rope_theta;
  for (std::int64_t i = 0; i < dim / 2; ++i)
    result.inverse.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
  if (base > 0) return result;
  switch (o.rope_scaling) {
    case RopeScaling::none:
      break;
    case RopeScaling::linear:
      for (double& f : result.inverse) f /= o.rope_factor;
      break;
    case RopeScaling::llama3:
      scale_llama3(o, result.inverse);
      break;
    case RopeScaling::yarn:
      scale_yarn(spec, result.inverse);
      result.attention_factor = yarn_attention_factor(o);
      break;
    case RopeScaling::longrope:
      scale_longrope(o, positions, result.inverse);
      result.attention_factor = longrope_attention_factor(o);
      break;
  }
  return result;
}

RotaryTable rotary_table(const ModelSpec& spec, std::int64_t positions) {
  RotaryTable table;
  table.cosine.reserve(to_size(spec.rotary_tables() * positions * spec.rotary_dim() / 2));
  table.sine.reserve(table.cosine.capacity());
  const std::int64_t bases = spec.rotary_bases(), of_base = spec.rotary_tables() / bases;
  for (std::int64_t which = 0; which < spec.rotary_tables(); ++which) {
    const auto frequencies = rotary_frequencies(spec, which / of_base, positions);
    for (std::int64_t p = 0; p < positions; ++p) {
      const double factor = frequencies.attention_factor * (which % of_base > 0 ? query_scale(spec.options, p) : 1);
      for (const double f : frequencies.inverse) {
        table.cosine.push_back(std::cos(static_cast<double>(p) * f) * factor);
        table.sine.push_back(std::sin(static_cast<double>(p) * f) * factor);
      }
    }
  }
  return table;
}

}  // namespace forge
