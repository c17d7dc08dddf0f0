#pragma once

#include <cstddef>

namespace forge {

// Bytes that operator new was last asked for in vain; 0: never.
std::size_t refused_bytes();
// Gives back memory that was put aside, so that the end can be told when there is none.
void give_back_reserve();

}  // namespace forge
