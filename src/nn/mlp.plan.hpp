#pragma once

#include "model/unit_builder.hpp"
#include "nn/rows.plan.hpp"

namespace forge {

// The pure half of nn/mlp.hpp.

// Of a dense block.
void add_mlp_parameters(UnitBuilder& unit);

template <class T>
struct MlpBuffers {
  View<T, 2> up;   // (R, 2F) gate and up, or (R, F); B leaves its gradient there, for W
  View<T, 2> act;  // (R, F)

  // Of a dense block, F = `ffn`, or of the shared experts.
  void list(BufferLister& l, std::int64_t ffn, bool shared);
};

// `output`: with the last product.
void add_mlp_sends(Sends& sends, Pass pass, bool output = true);

}  // namespace forge
