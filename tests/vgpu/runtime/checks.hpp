#pragma once

#include <cstddef>
#include <cstdint>

#include "memory.hpp"
#include "races.hpp"

namespace vgpu {

class Block;

// The memory that the thread of a kernel here may touch. Set while an executor runs a kernel; null for hosts, which may
// touch everything but device memory. The compiler's calls before each access (checks.cpp) compare with it.
struct KernelView {
  Block* block = nullptr;
  const Memory* memory = nullptr;
  std::uintptr_t stack = 0;       // of the fiber
  Live shared;                    // dynamic shared memory of the block, at the beginning of all of it
  SharedRaces* races = nullptr;   // of the block's shared memory
  Live live;                      // the allocation that was touched last
  std::uintptr_t parameters = 0;  // of the launch
  std::size_t parameter_bytes = 0;
  std::uintptr_t lanes = 0;  // the VgpuLanes of the operation of a warp that is being computed
};
extern thread_local constinit KernelView* kernel_view;

// Ends the process with the error, where the access is not allowed.
void check_access(std::uintptr_t address, std::size_t bytes, Access kind);

}  // namespace vgpu
