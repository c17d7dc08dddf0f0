#pragma once

#include "model/unit_builder.hpp"

namespace forge {

// The pure half of nn/attention_layer.hpp.

void add_attention_parameters(UnitBuilder& unit);

}  // namespace forge
