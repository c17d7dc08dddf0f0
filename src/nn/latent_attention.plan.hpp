#pragma once

#include "model/unit_builder.hpp"

namespace forge {

// The pure half of nn/latent_attention.hpp.

void add_latent_parameters(UnitBuilder& unit);

}  // namespace forge
