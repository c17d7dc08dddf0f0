#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace forge {

// Numbers of a node's cores, ascending.
using Cores = std::vector<int>;

// "0-3,8", as Linux writes and reads lists; empty of other texts.
Cores cores_from(const std::string& list);
std::string list_of(const Cores& cores);

// The cores that the calling thread may use.
Cores own_cores();
// The cores near a device by its PCI address, "0000:1b:00.0"; empty where the system doesn't say it.
Cores cores_near(const std::string& address, const std::string& devices = "/sys/bus/pci/devices");
// From here on the calling thread, and those that it starts, take these alone. False where the system refuses it.
bool use_cores(const Cores& cores);

// The cores that one of a node's ranks may use, and the cores near its GPU.
struct RankCores {
  Cores own, near;
};
// The cores that it should use: a share of all ranks' cores, split among the ranks whose GPUs are near the same cores.
// Its own where the system doesn't say which are near, or some rank would get less than an even part.
Cores shared_out(const std::vector<RankCores>& ranks, std::size_t rank);

}  // namespace forge
