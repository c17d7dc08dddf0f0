#pragma once

#include <string>

namespace forge {

// "oneDNN 2.6.0", "cuBLASLt 130100": the library of products that this process runs with.
std::string products_library_version();

}  // namespace forge
