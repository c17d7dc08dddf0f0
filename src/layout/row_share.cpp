#include "layout/row_share.hpp"

#include "core/error.hpp"

namespace forge {

std::vector<std::int32_t> zigzag_positions(std::int64_t sequence_tokens, int cp, int cp_rank) {
  std::vector<std::int32_t> positions;
  const std::int64_t chunks = cp == 1 ? 1 : 2 * cp;
  require(sequence_tokens % chunks == 0, "a sequence doesn't divide into the chunks of its context-parallel ranks");
  const std::int64_t length = sequence_tokens / chunks;
  auto add = [&](std::int64_t chunk) {
    for (std::int64_t t = 0; t < length; ++t) positions.push_back(static_cast<std::int32_t>(chunk * length + t));
  };
  add(cp_rank);
  if (cp > 1) add(chunks - 1 - cp_rank);
  return positions;
}

}  // namespace forge
