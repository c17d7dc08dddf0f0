#include "core/faults.hpp"

namespace forge {

const char* setting_of_tests(const char*) {
  return nullptr;
}

void inject_fault(int, std::int64_t) {}

void inject_fault(int, const char*, const std::function<bool()>&) {}

bool nan_fault(int, std::int64_t) {
  return false;
}

bool miscompute_fault(int, std::int64_t) {
  return false;
}

bool wrong_fault(int, const char*) {
  return false;
}

std::int64_t upset_fault(int, std::int64_t) {
  return -1;
}

SaveFaults::SaveFaults(int, std::int64_t) {}

SaveFaults::~SaveFaults() = default;

void SaveFaults::shard_written(const std::string&, std::uint64_t) const {}

void io_call(const char*, const std::string&) {}

}  // namespace forge
