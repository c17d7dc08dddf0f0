#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/random.hpp"
#include "train/references.hpp"

namespace forge::test {

// The reference's log-probabilities of all texts of pairs: the model's own, and a little more or less, so that no
// layout may have others.
template <class T>
std::vector<double> set_references(Session<T>& session, TrainingData& data, const std::vector<double>* given) {
  std::vector<double> all(static_cast<std::size_t>(text_count(data)));
  score_texts<T>(session, data, 0, [&](std::int64_t first, const std::vector<double>& values) {
    std::copy(values.begin(), values.end(), all.begin() + first);
  });
  std::vector<double> near = all;
  for (std::size_t i = 0; i < near.size(); ++i) near[i] += static_cast<double>(mix(5, i) % 1000) / 200 - 2.5;
  give_references(data, given ? *given : near);
  return all;
}

}  // namespace forge::test
