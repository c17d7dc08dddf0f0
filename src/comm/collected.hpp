#pragma once

#include <cstring>
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
  std::string bytes(sizeof number, 0);
  std::memcpy(bytes.data(), &number, sizeof number);
  std::vector<double> all;
  ranks.collect_host(bytes, 0,
                     [&](const std::string& one) { std::memcpy(&all.emplace_back(), one.data(), sizeof number); });
  return all;
}

}  // namespace forge
