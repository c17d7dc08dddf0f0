#include "device/device_version.hpp"

namespace forge {

std::string device_library() {
  return "";
}

}  // namespace forge
