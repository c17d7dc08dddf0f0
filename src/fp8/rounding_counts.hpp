#pragma once

#include <array>
#include <cstdint>

#include "core/view.hpp"
#include "model/block_product.hpp"

namespace forge {

// Tensors of a product that are rounded to FP8: y = x Wᵀ, dx = dy W.
enum class RoundedTensor { x, dy, weights, count_ };
inline constexpr std::array rounded_tensor_names{"x", "dy", "weights"};
static_assert(rounded_tensor_names.size() == to_size(RoundedTensor::count_));

// Numbers of a step that were rounded, those beyond the format's largest, and those other than 0 that became 0. All of
// a row of tables are counted equally often, wherever they are: shares of counts don't depend on the layout.
inline constexpr const char* rounding_counts_name = "counts of FP8";  // of their memory
inline constexpr std::int64_t rounding_count_columns = 3;
inline constexpr std::int64_t rounding_count_rows =
    static_cast<std::int64_t>(to_size(BlockProduct::count_) * to_size(RoundedTensor::count_));
constexpr std::int64_t rounding_count_row(BlockProduct product, RoundedTensor tensor) {
  return static_cast<std::int64_t>(to_size(product) * to_size(RoundedTensor::count_) + to_size(tensor));
}

struct RoundingCounts {
  View<double, 2> counts;    // (rounding_count_rows, rounding_count_columns); empty: this step isn't counted
  View<double, 1> partials;  // sum_partials
  bool weights = true;       // counts of weights, too: experts' rounds read theirs again, and one of them counts
};

}  // namespace forge
