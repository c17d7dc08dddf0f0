#include "train/sampling.hpp"

#include "core/error.hpp"
#include "core/random.hpp"

namespace forge {

TokenChoice choice_of(const SamplingOptions& options, std::int64_t position, std::int64_t sample) {
  const auto words = philox(random_key(options.seed, Purpose::sampling), static_cast<std::uint64_t>(position),
                            static_cast<std::uint64_t>(sample));
  return {options.temperature, options.top_k, options.top_p, uniform(words[0], words[1])};
}

std::int32_t checked_token(std::int32_t token, std::int64_t position) {
  if (token >= 0) return token;
  throw Error(
      "the model gives NaN or Inf behind token " + std::to_string(position - 1) + " of the text: no token can be drawn",
      ExitCode::not_finite);
}

}  // namespace forge
