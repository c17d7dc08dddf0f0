#include "settings.hpp"

#include <cstdlib>
#include <functional>

#include "fail.hpp"

namespace vgpu {

namespace {

// The value of a variable, where it is set; bad values end the program.
void read(const char* name, const char* legal, const std::function<bool(const std::string&)>& take) {
  const char* text = std::getenv(name);
  if (text && *text && !take(text)) fail(std::string(name) + "=" + text + ": legal is " + legal);
}

template <class T>
std::function<bool(const std::string&)> number(T& to, double least, double most, double unit = 1) {
  return [&to, least, most, unit](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (*end != '\0' || !(value >= least && value <= most)) return false;
    to = static_cast<T>(value * unit);
    return true;
  };
}

Settings from_environment() {
  Settings s;
  read("FORGE_VGPU_SEED", "a whole number", number(s.seed, 0, 9007199254740992.0));
  read("FORGE_VGPU_DEVICES", "a number from 1 to 1024", number(s.devices, 1, 1024));
  read("FORGE_VGPU_MEMORY_GIB", "a number from 0.001 to 256", number(s.memory, 0.001, 256, 1 << 30));
  s.memory = s.memory >> 12 << 12;
  read("FORGE_VGPU_ARCH", "80, 86, 89, 90 or 100", [&](const std::string& text) {
    s.arch = std::atoi(text.c_str());
    return text == "80" || text == "86" || text == "89" || text == "90" || text == "100";
  });
  read("FORGE_VGPU_TIMEOUT_SECONDS", "a number from 1 to 86400", number(s.timeout_seconds, 1, 86400));
  read("FORGE_VGPU_NCCL_ORDER", "launch or free", [&](const std::string& text) {
    s.nccl_order = text == "launch" ? Settings::Order::launch : Settings::Order::free;
    return text == "launch" || text == "free";
  });
  if (const char* fault = std::getenv("FORGE_VGPU_NCCL_FAULT")) s.nccl_fault = fault;
  if (const char* report = std::getenv("FORGE_VGPU_REPORT")) s.report = report;
  return s;
}

}  // namespace

std::size_t Settings::shared_limit() const {
  if (arch == 80) return 163 << 10;
  if (arch == 86 || arch == 89) return 99 << 10;
  return 227 << 10;
}

const Settings& settings() {
  static const Settings& read_once = *new Settings(from_environment());  // outlives whoever runs at the end
  return read_once;
}

}  // namespace vgpu
