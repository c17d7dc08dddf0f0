#include <cmath>

#include "core/error.hpp"
#include "core/fp8.hpp"
#include "device/launch.hpp"
#include "kernels/fp8/fp8_operand.hpp"

namespace forge {

namespace {

constexpr int block_threads = 256;

// 1 / scale of a group, by which a sum of products of its codes is multiplied; NaN where its amax is Inf.
__device__ float factor_of(float amax, Fp8Format format, bool exact) {
  return amax < static_cast<float>(INFINITY) ? 1 / fp8_scale(amax, format, exact) : static_cast<float>(NAN);
}

// factors(rows, columns) of a layout: 1 / scale of a group of lines and one of the depth; of a line; of a slot of a
// line; of a slot of 128 lines, 0 behind the last slot.
__global__ void __launch_bounds__(block_threads) factors_kernel(Fp8Codes of, FactorLayout layout, float* factors) {
  const std::uint32_t i = blockIdx.x * block_threads + threadIdx.x,
                      columns = static_cast<std::uint32_t>(layout.columns);
  if (i >= static_cast<std::uint32_t>(layout.rows) * columns) return;
  const std::int64_t r = i / columns, c = i % columns;
  std::int64_t line_group = r, depth_group = c;
  if (layout.order != FactorOrder::groups) {
    const bool blocks = layout.order == FactorOrder::blocks, slots = layout.order == FactorOrder::slots;
    const std::int64_t line = blocks ? r * fp8_block : c, slot = blocks ? c : slots ? r : 0;
    if (slot >= of.slots.first[3]) {
      factors[i * layout.each()] = 0;
      return;
    }
    line_group = of.lines.group_of(line);
    depth_group = of.slots.group_of(static_cast<std::int32_t>(slot));
  }
  const float amax = of.amax[line_group * of.line_stride + depth_group * of.depth_stride];
  factors[i * layout.each()] = factor_of(amax, of.format, of.exact);
}

}  // namespace

Fp8Factors fp8_factors(Stream& stream, const Fp8Codes& of, Fp8Scaling scaling, View<float, 1> memory) {
  const FactorLayout layout = factor_layout(of.codes.rows(), of.lines, of.slots, scaling);
  require(layout.count() <= memory.rows(), "factors of codes don't fit their memory");
  const std::int64_t count = layout.rows * layout.columns;
  launch(stream, "factors of codes", factors_kernel, {(count + block_threads - 1) / block_threads, block_threads}, of,
         layout, memory.data);
  return {memory.data, layout};
}

}  // namespace forge
