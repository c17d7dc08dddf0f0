#pragma once

#include <cstdint>

namespace forge {

// What the kernels of routers keep of a row (kernels/experts/router_rows.cpp, permute.cpp).
inline constexpr std::int64_t most_expert_choices = 64, most_router_groups = 64;

}  // namespace forge
