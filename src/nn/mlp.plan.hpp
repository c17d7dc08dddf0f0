#pragma once

#include "model/unit_builder.hpp"

namespace forge {

// The pure half of nn/mlp.hpp.

// Of a dense block.
void add_mlp_parameters(UnitBuilder& unit);

}  // namespace forge
