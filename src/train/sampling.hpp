#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/heartbeat.hpp"
#include "nn/decoder.hpp"

namespace forge {

// How the next token is drawn. temperature 0: the most likely one. top_k 0 and top_p 1: no restriction.
struct SamplingOptions {
  double temperature = 1;
  std::int64_t top_k = 0;
  double top_p = 1;
  std::uint64_t seed = 0;
  std::vector<std::int32_t> ends{};  // tokens behind which nothing comes
};

// The choice of the token at a position, cut to the top_k most likely and to the smallest set whose probability reaches
// top_p (Holtzman et al. 2020). The draw is keyed by seed, sample and position; a text by itself is sample 0.
TokenChoice choice_of(const SamplingOptions& options, std::int64_t position, std::int64_t sample = 0);
// The token; throws Error (code not_finite) where it is −1, as a logit is NaN, or all are infinite.
std::int32_t checked_token(std::int32_t token, std::int64_t position);

// Continues a prompt by `count` tokens: fewer when the decoder is full, behind an end, when `each`, if any, which gets
// each token at once, returns false, or when `stops`, if any, returns true before one. The result holds only the new
// ones. The heartbeat, if any, beats behind each.
template <class T>
std::vector<std::int32_t> continue_tokens(Decoder<T>& decoder, const std::vector<std::int32_t>& prompt,
                                          std::int64_t count, const SamplingOptions& options,
                                          Heartbeat* heartbeat = nullptr,
                                          const std::function<bool(std::int32_t)>& each = {},
                                          const std::function<bool()>& stops = {}) {
  std::vector<std::int32_t> out;
  decoder.append(prompt);
  while (static_cast<std::int64_t>(out.size()) < count && !(stops && stops())) {
    out.push_back(checked_token(decoder.choose(choice_of(options, decoder.length())), decoder.length()));
    if (heartbeat) heartbeat->beat();
    if (each && !each(out.back())) break;
    if (std::find(options.ends.begin(), options.ends.end(), out.back()) != options.ends.end()) break;
    if (decoder.length() == decoder.capacity()) break;
    decoder.append({out.back()});
  }
  return out;
}

}  // namespace forge
