#pragma once

#include <string>

namespace forge {

// "CUDA 12.4, driver for 12.6": what this process runs with; empty on the CPU.
std::string device_library();

}  // namespace forge
