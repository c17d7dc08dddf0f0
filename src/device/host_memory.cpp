#include <fstream>
#include <sstream>
#include <string>

#include "device/device_memory.hpp"

namespace forge {

HostMemory host_memory() {
  HostMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    std::size_t kibibytes = 0;
    words >> name >> kibibytes;
    if (name == "VmRSS:") memory.resident = kibibytes * 1024;
    if (name == "VmHWM:") memory.peak = kibibytes * 1024;
  }
  return memory;
}

}  // namespace forge
