#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "block.hpp"
#include "work.hpp"

namespace vgpu {

// ---- works of streams but for events, products and NCCL

// Owns the kernel's parameters.
struct Launch {
  Grid grid;
  ~Launch() { grid.kernel.release(grid.kernel.parameters); }
  Launch() = default;
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
};
std::unique_ptr<Work> kernel_work(std::shared_ptr<const Launch> launch);

// Device addresses are the program's; `pinned` copies read and write the host still later.
enum class CopyKind { to_device, to_host, on_device };
std::unique_ptr<Work> copy_work(void* to, const void* from, std::size_t bytes, CopyKind kind, bool pinned);
// `rows` times `width` bytes, `pitch` apart.
std::unique_ptr<Work> set_work(void* to, int value, std::size_t width, std::size_t rows, std::size_t pitch);

std::unique_ptr<Work> host_work(std::function<void()> function);

}  // namespace vgpu
