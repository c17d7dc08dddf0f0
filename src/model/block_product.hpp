#pragma once

#include <array>
#include <cstdint>

#include "core/short_list.hpp"
#include "core/to_size.hpp"

namespace forge {

// A block's products with its weights, as reports name them; q, k and v are one, and so are gate and up.
enum class BlockProduct {
  qkv,
  attention_out,
  gate_up,
  down,
  q_down,
  kv_down,
  q_up,
  kv_up,
  expert_gate_up,
  expert_down,
  count_
};
inline constexpr std::array block_product_names{"qkv",     "attention_out", "gate_up", "down",           "q_down",
                                                "kv_down", "q_up",          "kv_up",   "expert_gate_up", "expert_down"};
static_assert(block_product_names.size() == to_size(BlockProduct::count_));

// y = x Wᵀ, dx = dy W, dW += dyᵀ x.
enum class ProductOf { output, input_gradient, weight_gradient };

// Consecutive rows or columns of a matrix that tp, or of an expert etp, may split: of each part (q, k and v; gate and
// up) this rank has `count`, and so has each of `copies` neighbours.
struct MatrixLines {
  struct Part {
    std::int64_t count, copies;
  };
  ShortList<Part, 3> parts;
  bool split = false;

  std::int64_t count() const {
    std::int64_t sum = 0;
    for (const Part& part : parts) sum += part.count;
    return sum;
  }
};
inline MatrixLines whole_lines(std::int64_t count) {
  return {{{count, 1}}, false};
}
inline MatrixLines split_lines(std::int64_t count) {
  return {{{count, 1}}, true};
}

// How tp, or of an expert etp, splits a weight W(N,K).
struct MatrixSplit {
  MatrixLines rows, columns;
  BlockProduct product{};
};

}  // namespace forge
