#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sent_bytes.hpp"

namespace forge::test {

// Bytes that a group of n ranks sends, by operation.
class SentGroup {
 public:
  SentGroup(std::string name, std::vector<int> ranks) : bytes_{std::move(name), std::move(ranks), {}} {}

  std::int64_t n() const { return static_cast<std::int64_t>(bytes_.ranks.size()); }
  // Elements of one call, bytes of each, calls.
  void all_reduce(std::int64_t k, std::int64_t size, std::int64_t calls = 1) {
    bytes_.sent.all_reduce += calls * (2 * k * (n() - 1) / n()) * size;
  }
  void all_gather(std::int64_t k, std::int64_t size, std::int64_t calls = 1) {
    bytes_.sent.all_gather += calls * k * (n() - 1) * size;
  }
  // A reduce-scatter of a part of k elements, an all-to-all of k a pair, or k sent to each of the others.
  void messages(std::int64_t k, std::int64_t size, std::int64_t calls = 1) {
    bytes_.sent.messages += calls * k * (n() - 1) * size;
  }
  void send(std::int64_t k, std::int64_t size, std::int64_t calls) {
    if (n() > 1) bytes_.sent.messages += calls * k * size;
  }
  const GroupBytes& bytes() const { return bytes_; }

 private:
  GroupBytes bytes_;
};

// Of sums in two levels over the nodes, as many shards on each: those on this rank's, and those of its place there.
inline std::pair<std::vector<int>, std::vector<int>> shard_levels(const Deck& d, int rank,
                                                                  const std::vector<int>& shards) {
  const std::pair<std::vector<int>, std::vector<int>> alone{{rank}, {rank}};
  const int distance = shards.size() > 1 ? shards[1] - shards[0] : 1, there = d.mesh.node_ranks;
  if (there == 0 || (distance % there != 0 && there % distance != 0)) return alone;
  std::map<int, std::vector<int>> nodes;
  for (const int shard : shards) nodes[shard / there].push_back(shard);
  bool alike = d.train.reduction == ReductionLevels::two_level && nodes.size() > 1;
  for (const auto& node : nodes) alike = alike && node.second.size() == nodes.begin()->second.size();
  if (!alike) return alone;
  const std::vector<int>& near = nodes[rank / there];
  const auto place = std::find(near.begin(), near.end(), rank) - near.begin();
  std::vector<int> rail;
  for (const auto& node : nodes) rail.push_back(node.second[static_cast<std::size_t>(place)]);
  return {near, rail};
}

}  // namespace forge::test
