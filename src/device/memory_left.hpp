#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace forge {

// Bytes of host memory that a limit leaves, and the limit: "MemAvailable", "memory.max of the cgroup /job", "ulimit
// -v".
struct MemoryLeft {
  std::size_t bytes;
  std::string limit;
};
// Memory left to the processes of this node: MemAvailable, or less where a cgroup (v1 or v2) of this process leaves
// less. None where the system tells nothing. `root`: of the tree with proc and sys, for tests.
std::optional<MemoryLeft> node_memory_left(const std::string& root = "");
// The addresses that `ulimit -v` leaves to this process; none without that limit.
std::optional<MemoryLeft> addresses_left();

// "available: 1.20 GiB (MemAvailable), 300.00 MiB (ulimit -v)".
std::string memory_left_text();
// "this process has 12 threads; limits: …": of threads.
std::string threads_left_text();

}  // namespace forge
