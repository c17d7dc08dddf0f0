#pragma once

#include "model/parameters.hpp"

namespace forge {

// The pure half of nn/head.hpp.

Unit output_unit(const ModelSpec& spec);
Unit final_norm_unit(const ModelSpec& spec);

}  // namespace forge
