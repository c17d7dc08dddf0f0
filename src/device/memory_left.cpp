#include "device/memory_left.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

#include "core/bytes.hpp"
#include "device/device_memory.hpp"

namespace forge {

namespace {

// The first number of a file; none where there is none, as in "max".
std::optional<std::uint64_t> number_of(const std::string& file) {
  std::ifstream in(file);
  std::uint64_t number = 0;
  if (!(in >> number)) return {};
  return number;
}

// The number behind `name` in a file of lines "name number".
std::optional<std::uint64_t> number_of(const std::string& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t number = 0;
    if (words >> word >> number && word == name) return number;
  }
  return {};
}

// Files of one version of cgroups. What was read of files can be given back: it counts as free.
struct CgroupFiles {
  const char *limit, *usage, *cache;
};
constexpr CgroupFiles version_1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr CgroupFiles version_2{"memory.max", "memory.current", "inactive_file"};

void keep_less(std::optional<MemoryLeft>& least, const MemoryLeft& other) {
  if (!least || other.bytes < least->bytes) least = other;
}

// Of a cgroup and those that it stands in. Within a container its path may be one of the host's: then only the mount is
// there.
void add_cgroups(std::optional<MemoryLeft>& least, const std::string& mount, std::string path,
                 const CgroupFiles& files) {
  while (true) {
    const std::string folder = mount + (path == "/" ? "" : path) + "/";
    const auto limit = number_of(folder + files.limit), usage = number_of(folder + files.usage);
    if (limit && usage) {
      const std::uint64_t cache = number_of(folder + "memory.stat", files.cache).value_or(0);
      const std::uint64_t used = *usage - std::min(*usage, cache);
      keep_less(least, {*limit - std::min(*limit, used), std::string(files.limit) + " of the cgroup " + path});
    }
    if (path.empty() || path == "/") return;
    const std::size_t slash = path.rfind('/');
    path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
  }
}

std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// "400", or "none".
std::string limit_text(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return "none";
  return std::to_string(limit.rlim_cur);
}

}  // namespace

std::optional<MemoryLeft> node_memory_left(const std::string& root) {
  std::optional<MemoryLeft> least;
  if (const auto kibibytes = number_of(root + "/proc/meminfo", "MemAvailable:"))
    least = MemoryLeft{*kibibytes * 1024, "MemAvailable"};
  std::ifstream cgroups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(cgroups, line);) {  // number:controllers:path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,")
      add_cgroups(least, root + "/sys/fs/cgroup", path, version_2);
    else if (controllers.find(",memory,") != std::string::npos)
      add_cgroups(least, root + "/sys/fs/cgroup/memory", path, version_1);
  }
  return least;
}

HostMemory host_memory() {
  const auto bytes = [](const char* name) { return 1024 * number_of("/proc/self/status", name).value_or(0); };
  return {bytes("VmRSS:"), bytes("VmHWM:")};
}

std::optional<MemoryLeft> addresses_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  const std::uint64_t used = number_of("/proc/self/statm").value_or(0) * page_bytes();
  return MemoryLeft{limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, used), "ulimit -v"};
}

std::string memory_left_text() {
  std::string text;
  for (const auto& left : {node_memory_left(), addresses_left()})
    if (left) text += (text.empty() ? "available: " : ", ") + format_bytes(left->bytes) + " (" + left->limit + ")";
  return text;
}

std::string threads_left_text() {
  const std::uint64_t threads = number_of("/proc/self/status", "Threads:").value_or(0);
  const auto most = number_of("/sys/fs/cgroup/pids.max");
  return "this process has " + std::to_string(threads) + " threads; limits: ulimit -u " + limit_text(RLIMIT_NPROC) +
         " of the user, pids.max " + (most ? std::to_string(*most) : "none") + ", and each thread takes " +
         "8 MiB of addresses for its stack, of " +
         (addresses_left() ? format_bytes(addresses_left()->bytes) + " that ulimit -v leaves"
                           : "which none is missing");
}

}  // namespace forge
