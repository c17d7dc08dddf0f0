#pragma once

#include <string>

namespace forge {

// "1.10.8": of the library that this process runs with.
std::string hdf5_version();

}  // namespace forge
