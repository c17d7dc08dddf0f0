#include "data/packing.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "core/error.hpp"

namespace forge {

std::vector<std::vector<std::uint32_t>> best_fit(std::span<const DocumentPiece> pieces, std::int64_t T) {
  std::vector<std::uint32_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return pieces[a].length > pieces[b].length; });
  std::vector<std::vector<std::uint32_t>> samples;
  std::set<std::pair<std::int64_t, std::size_t>> open;  // room left, sample
  for (const std::uint32_t i : order) {
    const std::int64_t length = pieces[i].length;
    require(0 < length && length <= T, "packing: a piece has 1 to T tokens");
    const auto found = open.lower_bound({length, 0});
    std::int64_t room = T;
    std::size_t sample = samples.size();
    if (found != open.end()) {
      room = found->first;
      sample = found->second;
      open.erase(found);
    } else {
      samples.emplace_back();
    }
    samples[sample].push_back(i);
    if (room > length) open.emplace(room - length, sample);
  }
  for (auto& sample : samples) std::sort(sample.begin(), sample.end());
  return samples;
}

}  // namespace forge
