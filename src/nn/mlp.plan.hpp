#pragma once

#include "model/unit_builder.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// The pure half of nn/mlp.hpp.

// The parameters of a dense block's.
void add_mlp_parameters(UnitBuilder& unit);

template <class T>
struct MlpBuffers {
  View<T, 2> up;   // (R, 2F) gate and up, or (R, F); B leaves its gradient there, for W
  View<T, 2> act;  // (R, F)

  // Of a dense block, F = `ffn`, or of the shared experts.
  void list(BufferLister& l, std::int64_t ffn, bool shared) {
    const bool gated = l.spec.gated();
    const char* name = shared ? (gated ? "shared gate and up" : "shared up") : (gated ? "gate and up" : "up");
    l.save(up, name, l.R, l.spec.up_columns(ffn), l.W);
    l.recompute(act, shared ? "shared activation" : "activation", l.R, ffn, l.W);
  }
};

// The collectives of a pass; `output`: with the last product.
void add_mlp_sends(Sends& sends, Pass pass, bool output = true);

}  // namespace forge
