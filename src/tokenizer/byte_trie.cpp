#include "tokenizer/byte_trie.hpp"

#include <algorithm>

#include "core/to_size.hpp"

namespace forge {

namespace {

// Tries of a free place before the array is made longer: bounds the time, and leaves some places unused.
constexpr int most_tries = 64;

struct Range {
  std::size_t begin, end, depth;
  std::int32_t node;
};

}  // namespace

ByteTrie::ByteTrie(Strings strings) {
  std::stable_sort(strings.begin(), strings.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes_.resize(514);
  nodes_[0].parent = -2;  // nobody's child
  std::vector<Range> open{{0, strings.size(), 0, 0}};
  while (!open.empty()) {
    const Range range = open.back();
    open.pop_back();
    std::size_t at = range.begin;
    // Those that end here stand first.
    for (; at < range.end && strings[at].first.size() == range.depth; ++at)
      if (range.depth > 0) nodes_[to_size(range.node)].value = strings[at].second;
    std::vector<std::uint8_t> bytes;
    std::vector<std::size_t> starts;
    for (; at < range.end; ++at) {
      const auto byte = static_cast<std::uint8_t>(strings[at].first[range.depth]);
      if (bytes.empty() || bytes.back() != byte) bytes.push_back(byte), starts.push_back(at);
    }
    if (bytes.empty()) continue;
    starts.push_back(range.end);
    const std::int32_t base = place(bytes);
    nodes_[to_size(range.node)].base = base;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::int32_t child = base + bytes[i];
      nodes_[to_size(child)].parent = range.node;
      open.push_back({starts[i], starts[i + 1], range.depth + 1, child});
    }
  }
}

void ByteTrie::weigh(const std::vector<float>& weights) {
  for (Node& node : nodes_)
    if (node.value != none) node.weight = weights[to_size(node.value)];
}

std::int32_t ByteTrie::place(const std::vector<std::uint8_t>& bytes) {
  while (nodes_[to_size(first_free_)].parent != none && to_size(first_free_) + 257 < nodes_.size()) ++first_free_;
  std::int32_t base = std::max(1, first_free_ - bytes.front());
  for (int tries = 0;; ++tries, ++base) {
    if (tries == most_tries) {
      base = static_cast<std::int32_t>(nodes_.size());
      ++first_free_;  // a place that fits nobody
    }
    if (to_size(base) + 256 >= nodes_.size()) nodes_.resize(to_size(base) + 257);
    const bool free = std::all_of(bytes.begin(), bytes.end(),
                                  [&](std::uint8_t byte) { return nodes_[to_size(base + byte)].parent == none; });
    if (free) return base;
  }
}

}  // namespace forge
