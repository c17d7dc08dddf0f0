#pragma once

#include <string>

namespace forge {

// "1.2.13": of the zlib that this process runs with.
std::string zlib_library_version();

}  // namespace forge
