#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace vgpu {

// The environment's settings of the machine, read once. docs/developer.md lists the variables.
struct Settings {
  std::uint64_t seed = 1;
  int devices = 64;                            // of a node
  std::size_t memory = std::size_t{16} << 30;  // of a device
  int arch = 90;                               // compute capability, major and minor
  double timeout_seconds = 600;                // without progress, while somebody waits
  enum class Order { by_seed, launch, free } nccl_order = Order::by_seed;
  std::string nccl_fault;  // "RANK:OPERATION": this operation of this rank fails, later and elsewhere
  std::string report;      // file; empty: none

  // Shared memory of a block, at most; a launch that asks for no more than this needs no attribute.
  std::size_t shared_limit() const;
  static constexpr std::size_t shared_default = 48 << 10;
  // Few, so that a kernel whose blocks are as many takes several rows with each in a small test.
  static constexpr int multiprocessors = 4;
};
const Settings& settings();

}  // namespace vgpu
