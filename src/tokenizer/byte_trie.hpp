#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace forge {

// Strings with values, read byte by byte: a double array (Aoe 1989) in which node n's child under byte b stands at
// base[n] + b and names n as its parent.
class ByteTrie {
 public:
  static constexpr std::int32_t none = -1;

  ByteTrie() : ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>>()) {}
  // Values from 0. Of a string that is there twice the last value holds. Empty strings are left out.
  explicit ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> strings);

  bool empty() const { return nodes_[0].base == 0; }
  // The child of a node (the root is 0) under a byte, or none.
  std::int32_t step(std::int32_t node, std::uint8_t byte) const {
    const std::int32_t child = nodes_[static_cast<std::size_t>(node)].base + byte;
    return nodes_[static_cast<std::size_t>(child)].parent == node ? child : none;
  }
  // The value of the string that ends at a node, or none.
  std::int32_t value(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)].value; }
  // Puts weights[value] beside each value.
  void weigh(const std::vector<float>& weights);
  // The weight beside the value of a node that has one.
  float weight(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)].weight; }

 private:
  // 16 bytes: none lies in two cache lines.
  struct alignas(16) Node {
    std::int32_t base = 0, parent = none, value = none;
    float weight = 0;
  };
  using Strings = std::vector<std::pair<std::string_view, std::int32_t>>;
  std::int32_t place(const std::vector<std::uint8_t>& bytes);

  std::vector<Node> nodes_;
  std::int32_t first_free_ = 257;
};

}  // namespace forge
