#pragma once

#include "fp8/scaled_product.hpp"
#include "model/buffers.hpp"

namespace forge {

// Notes the operands whose amaxes a product of this pass need not take. MLA's q_down and kv_down read the same x.
inline void set_known(ScaledProduct& p, const BufferContext& c, ProductOf of, BlockProduct product, bool recomputes) {
  if (!c.rounding.keeps_amaxes()) return;
  const bool shares = of == ProductOf::output && product == BlockProduct::kv_down && c.spec.q_lora() > 0;
  p.knows_a = recomputes || shares || of == ProductOf::weight_gradient;
  p.knows_b = true;
}

// Largest magnitudes that a block's products take once in a microbatch and read again: x's are taken forward, for
// recomputed passes and backward; dy's for the input's gradient, for the weight's. A weight's are taken once
// for an update (plan/fp8/coded_units.hpp). So it is where they are few, with a scale a sequence and one a matrix. The
// other recipes have as many as tokens or blocks, or round weights otherwise backward; `delayed` has its scales before.
struct SavedAmaxes {
  // Amaxes of each product of a block but experts': of x (sequences), of dy (sequences). Zeros where a microbatch's
  // forward pass begins: whoever takes them raises them.
  View<float, 2> rows;
  bool recomputes = false;  // this pass repeats an earlier one

  void list(BufferLister& l, std::int64_t layer) {
    if (!l.c.rounding.keeps_amaxes() || !l.c.rounding.has_block(layer)) return;
    l.keep(rows, "largest magnitudes of operands", static_cast<std::int64_t>(to_size(BlockProduct::expert_gate_up)),
           2 * l.c.microbatch.sequences, l.W);
  }
  View<float, 1> of(BlockProduct product, RoundedTensor tensor) const {
    const std::int64_t sequences = rows.columns() / 2;
    if (product == BlockProduct::kv_down && tensor == RoundedTensor::x) product = BlockProduct::q_down;
    float* const x = rows.row(static_cast<std::int64_t>(to_size(product)));
    return {tensor == RoundedTensor::x ? x : x + sequences, {{sequences}}};
  }
};

}  // namespace forge
