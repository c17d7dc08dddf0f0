#include "text/zlib_version.hpp"

#include <zlib.h>

namespace forge {

std::string zlib_library_version() {
  return zlibVersion();
}

}  // namespace forge
