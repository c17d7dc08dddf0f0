#include "comm/device_communicator.hpp"
#include "comm/library_versions.hpp"

namespace forge {

std::unique_ptr<Communicator> device_communicator(Communicator& ranks) {
  return ranks.duplicate();
}

bool devices_are_shared() {
  return false;
}

void set_device_environment(int) {}

std::string nccl_version() {
  return "";
}

}  // namespace forge
