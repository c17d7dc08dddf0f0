#pragma once

#include "core/array.hpp"
#include "fp8/scaled_product.hpp"

namespace forge {

// The delayed recipe ("delayed scaling", P. Micikevicius et al., "FP8 Formats for Deep Learning", arXiv:2209.05433;
// NVIDIA's Transformer Engine): a tensor's scale comes from its largest magnitudes (amax) in the steps before. Rows are
// numbered by rounding_count_row for each block of the model, but for routed experts', whose scales are by token; every
// rank has them all, alike.
struct AmaxHistory {
  static constexpr std::int64_t operands =
      rounding_count_row(BlockProduct::expert_gate_up, RoundedTensor{});  // of a block

  View<float, 2> entries;  // (rows, steps) the newest first, 0 before the first step; empty: another recipe
  View<float, 1> given;    // (rows) the largest of them, which give the scales of the step at hand
  View<float, 1> step;     // (rows) amax of the step at hand, over this rank's part so far

  void list(BufferLister& l) {
    if (l.c.rounding.history == 0) return;
    l.add(entries, "largest magnitudes of steps", rows(l.spec), l.c.rounding.history);
    l.add(given, "largest magnitudes before", rows(l.spec), 1);
    l.add(step, "largest magnitudes of the step", rows(l.spec), 1);
  }
  static std::int64_t blocks(const ModelSpec& spec) { return spec.L() + spec.options.mtp_depth; }
  static std::int64_t rows(const ModelSpec& spec) { return blocks(spec) * operands; }
  static std::int64_t row(std::int64_t layer, BlockProduct product, RoundedTensor tensor) {
    return layer * operands + rounding_count_row(product, tensor);
  }
  View<float, 1> given_to(std::int64_t layer, BlockProduct product, RoundedTensor tensor) const {
    return given.slice(row(layer, product, tensor), row(layer, product, tensor) + 1);
  }
  View<float, 1> seen_of(std::int64_t layer, BlockProduct product, RoundedTensor tensor) const {
    return step.slice(row(layer, product, tensor), row(layer, product, tensor) + 1);
  }
};

// The operands of a product, in its order.
constexpr Array<RoundedTensor, 2> rounded_operands(ProductOf of) {
  return {{of == ProductOf::output ? RoundedTensor::x : RoundedTensor::dy,
           of == ProductOf::weight_gradient ? RoundedTensor::x : RoundedTensor::weights}};
}
// How many of them the history takes up, from the first on: forward x and W, backward dy.
constexpr int recorded_operands(ProductOf of) {
  return of == ProductOf::output ? 2 : of == ProductOf::input_gradient ? 1 : 0;
}

}  // namespace forge
