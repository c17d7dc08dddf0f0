#include "model/flops.hpp"

#include <algorithm>

namespace forge {

double mean_keys(std::int64_t sequence_tokens, std::int64_t window) {
  const double t = static_cast<double>(sequence_tokens);
  const double w = window > 0 ? std::min(static_cast<double>(window), t) : t;
  // Query i sees min(i + 1, w) keys: a triangle of w rows, then a band.
  return (w * (w + 1) / 2 + (t - w) * w) / t;
}

std::vector<FlopsLine> forward_flops_per_token(const ModelSpec& s, std::int64_t sequence_tokens) {
  const double layers = static_cast<double>(s.L());
  auto product = [](std::int64_t in, std::int64_t out) {
    return 2.0 * static_cast<double>(in) * static_cast<double>(out);
  };
  double attention = 0;
  for (std::int64_t layer = 0; layer < s.L(); ++layer)
    attention += 2 * product(s.q_columns(), 1) * mean_keys(sequence_tokens, s.window(layer));
  return {{"q, k, v projections", layers * product(s.C(), s.qkv_columns())},
          {"attention", attention},
          {"attention output", layers * product(s.q_columns(), s.C())},
          {"feed-forward", layers * (product(s.C(), s.up_columns()) + product(s.F(), s.C()))},
          {"output head", product(s.C(), s.V())}};
}

double training_flops_per_token(const ModelSpec& spec, std::int64_t sequence_tokens) {
  double sum = 0;
  for (const auto& line : forward_flops_per_token(spec, sequence_tokens)) sum += 3 * line.forward;
  return sum;
}

}  // namespace forge
