#pragma once

#include "model/unit_builder.hpp"

namespace forge {

// The pure half of nn/moe.hpp.

// Of the block: router and shared experts; and the unit of the experts.
void add_moe_parameters(UnitBuilder& unit);
Unit experts_unit(const ModelSpec& spec, std::int64_t layer);
RouterBias router_bias_of(const ModelSpec& spec, std::int64_t layer);

}  // namespace forge
