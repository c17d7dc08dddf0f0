#pragma once

#include "model/parameters.hpp"

namespace forge {

// The pure half of nn/block.hpp.

// All parameters of a block but its experts: of its attention, of its feed-forward part, of multi-token prediction.
Unit block_unit(const ModelSpec& spec, std::int64_t layer);

}  // namespace forge
