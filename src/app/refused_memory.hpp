#pragma once

#include <cstddef>

namespace forge {

// Bytes of operator new's last failed request; 0: none failed.
std::size_t refused_bytes();
// Gives back memory that was put aside, so that the last message can be printed when there is none.
void give_back_reserve();

}  // namespace forge
