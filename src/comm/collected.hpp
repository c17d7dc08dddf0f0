#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace forge {

// Collective. A number or a text of each rank, in their order, on rank 0; empty on the others.
inline std::vector<std::string> collected(Communicator& ranks, const std::string& text) {
  std::vector<std::string> all;
  ranks.collect_host(text, 0, [&](const std::string& one) { all.push_back(one); });
  return all;
}
inline std::vector<double> collected(Communicator& ranks, double number) {
  std::vector<double> all;
  for (const std::int64_t bits : ranks.collect_host(std::bit_cast<std::int64_t>(number), 0))
    all.push_back(std::bit_cast<double>(bits));
  return all;
}

}  // namespace forge
