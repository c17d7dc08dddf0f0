#pragma once

#include "model/unit_builder.hpp"

namespace forge {

// The pure half of nn/mtp.hpp.

// What a module has beside its block, in the block's unit.
void add_mtp_parameters(UnitBuilder& unit);

}  // namespace forge
