#include "checks.hpp"

#include <link.h>

#include <string>
#include <vector>

#include "block.hpp"
#include "fail.hpp"
#include "fiber.hpp"

namespace vgpu {

thread_local constinit KernelView* kernel_view __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

bool inside(std::uintptr_t address, std::size_t bytes, std::uintptr_t begin, std::size_t size) {
  return address - begin < size && size - (address - begin) >= bytes;
}

struct Segment {
  std::uintptr_t begin;
  std::size_t bytes;
};

// Constants of the program: a compiler may turn a kernel's arithmetic into tables.
const std::vector<Segment>& constants() {
  static const std::vector<Segment>& segments = *[] {
    auto& list = *new std::vector<Segment>;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* to) {
          for (int i = 0; i < info->dlpi_phnum; ++i)
            if (info->dlpi_phdr[i].p_type == PT_LOAD && !(info->dlpi_phdr[i].p_flags & PF_W))
              static_cast<std::vector<Segment>*>(to)->push_back(
                  {info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, info->dlpi_phdr[i].p_memsz});
          return 1;  // the program's own
        },
        &list);
    return &list;
  }();
  return segments;
}

bool constant(std::uintptr_t address, std::size_t bytes) {
  for (const Segment& s : constants())
    if (inside(address, bytes, s.begin, s.bytes)) return true;
  return false;
}

std::string text_of(std::uintptr_t address) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%zx", static_cast<std::size_t>(address));
  return text;
}

std::string access_text(std::uintptr_t address, std::size_t bytes, bool writes) {
  return std::string(writes ? "writes " : "reads ") + std::to_string(bytes) + " bytes at " + text_of(address) + ": ";
}

[[noreturn]] void fail_in_kernel(KernelView& view, std::uintptr_t address, std::size_t bytes, bool writes) {
  const int device = device_of(reinterpret_cast<void*>(address));
  std::string why = "memory of the host";
  if (device >= 0)
    why = device == view.block->device() ? view.memory->neighbours(address)
                                         : "memory of device " + std::to_string(device);
  else if (view.block->is_shared(address))
    why = "outside the arrays of the block's shared memory";
  else if (view.block->is_local(address))
    why = "local memory of another thread";
  else if (inside(address, 1, view.parameters, view.parameter_bytes))
    why = "the launch's parameters";
  fail(view.block->place() + " " + access_text(address, bytes, writes) + why);
}

// Where the quick comparisons of the calls say no.
void check_in_kernel(KernelView& view, std::uintptr_t address, std::size_t bytes, bool writes) {
  if (view.block->shared_access(address, bytes, writes)) return;
  if (!writes && inside(address, bytes, view.parameters, view.parameter_bytes)) return;
  if (inside(address, bytes, view.lanes, sizeof(VgpuLanes))) return;
  if (device_of(reinterpret_cast<void*>(address)) >= 0) {
    const Live live = view.memory->live(address);
    if (inside(address, bytes, live.begin, live.bytes)) {
      view.live = live;
      return;
    }
  }
  if (!writes && constant(address, bytes)) return;
  fail_in_kernel(view, address, bytes, writes);
}

void check_on_host(std::uintptr_t address, std::size_t bytes, bool writes) {
  if (address - reserved_window.begin >= reserved_window.bytes) return;
  fail("the host " + access_text(address, bytes, writes) + "memory of device " +
       std::to_string(device_of(reinterpret_cast<void*>(address))));
}

inline __attribute__((always_inline)) void check(std::uintptr_t address, std::size_t bytes, bool writes) {
  KernelView* view = kernel_view;
  if (view == nullptr) [[likely]]
    return check_on_host(address, bytes, writes);
  if (inside(address, bytes, view->live.begin, view->live.bytes)) return;
  if (inside(address, bytes, view->stack, Fiber::stack_bytes)) return;
  if (inside(address, bytes, view->shared.begin, view->shared.bytes)) return;
  check_in_kernel(*view, address, bytes, writes);
}

}  // namespace

void check_access(std::uintptr_t address, std::size_t bytes, bool writes) {
  check(address, bytes, writes);
}

}  // namespace vgpu

// ---- what the compiler calls (-fsanitize=kernel-address without shadow memory)
extern "C" {

#define VGPU_CHECK(bytes)                                      \
  void __asan_load##bytes##_noabort(std::uintptr_t address) {  \
    vgpu::check(address, bytes, false);                        \
  }                                                            \
  void __asan_store##bytes##_noabort(std::uintptr_t address) { \
    vgpu::check(address, bytes, true);                         \
  }
VGPU_CHECK(1)
VGPU_CHECK(2)
VGPU_CHECK(4)
VGPU_CHECK(8)
VGPU_CHECK(16)
#undef VGPU_CHECK

void __asan_loadN_noabort(std::uintptr_t address, std::size_t bytes) {
  if (bytes > 0) vgpu::check(address, bytes, false);
}
void __asan_storeN_noabort(std::uintptr_t address, std::size_t bytes) {
  if (bytes > 0) vgpu::check(address, bytes, true);
}
void __asan_handle_no_return() {}
void __asan_before_dynamic_init(const char*) {}
void __asan_after_dynamic_init() {}

void vgpu_atomic(const void* p, std::size_t bytes) {
  if (!vgpu::kernel_view) vgpu::fail("an atomic operation outside of a kernel");
  vgpu::check(reinterpret_cast<std::uintptr_t>(p), bytes, true);
}

}  // extern "C"
