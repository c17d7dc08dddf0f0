#include "train/sampling.hpp"

#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "core/random.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// Whether there are probabilities of these logits; −Inf is that of what can't follow.
bool has_probabilities(const std::vector<double>& logits) {
  const bool defined =
      std::none_of(logits.begin(), logits.end(), [](double x) { return std::isnan(x) || x == HUGE_VAL; });
  return defined && std::any_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); });
}

// Keeps the most likely tokens, best first; ties go to the lower id.
std::vector<std::int32_t> candidates(const std::vector<double>& logits, std::int64_t top_k) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::int32_t a, std::int32_t b) { return logits[to_size(a)] > logits[to_size(b)]; });
  if (top_k > 0 && top_k < static_cast<std::int64_t>(ids.size())) ids.resize(to_size(top_k));
  return ids;
}

}  // namespace

std::int32_t sample_token(const std::vector<double>& logits, const SamplingOptions& options, std::int64_t position) {
  if (!has_probabilities(logits))
    throw Error("the model gives NaN or Inf for what follows token " + std::to_string(position - 1) +
                    " of the text: no token can be drawn",
                ExitCode::not_finite);
  const auto ids = candidates(logits, options.temperature == 0 ? 1 : options.top_k);
  if (ids.size() == 1) return ids.front();
  const double best = logits[to_size(ids.front())];
  std::vector<double> weight;
  double sum = 0;
  for (const auto id : ids) {
    weight.push_back(std::exp((logits[to_size(id)] - best) / options.temperature));
    sum += weight.back();
  }
  std::size_t kept = weight.size();
  double mass = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    mass += weight[i];
    if (mass >= options.top_p * sum) {
      kept = i + 1;
      break;
    }
  }
  const auto words = philox(random_key(options.seed, Purpose::sampling), static_cast<std::uint64_t>(position), 0);
  double left = uniform(words[0], words[1]) * std::min(mass, sum);
  for (std::size_t i = 0; i < kept; ++i) {
    left -= weight[i];
    if (left < 0) return ids[i];
  }
  return ids[kept - 1];
}

}  // namespace forge
