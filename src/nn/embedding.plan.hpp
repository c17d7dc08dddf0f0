#pragma once

#include "model/parameters.hpp"

namespace forge {

// The pure half of nn/embedding.hpp.

Unit token_table_unit(const ModelSpec& spec);
Unit position_table_unit(const ModelSpec& spec);

}  // namespace forge
