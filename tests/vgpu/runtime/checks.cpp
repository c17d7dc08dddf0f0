#include "checks.hpp"

#include <link.h>

#include <cstdio>
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

std::string access_text(std::uintptr_t address, std::size_t bytes, Access kind) {
  return std::string(only_reads(kind) ? "reads " : "writes ") + std::to_string(bytes) + " bytes at " +
         text_of(address) + ": ";
}

[[noreturn]] void fail_in_kernel(KernelView& view, std::uintptr_t address, std::size_t bytes, Access kind) {
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
  fail(view.block->place() + " " + access_text(address, bytes, kind) + why);
}

void check_race(KernelView& view, std::uintptr_t address, std::size_t bytes, Access kind) {
  if (!view.races->access(address - view.shared.begin, bytes, kind))
    view.block->fail_of_race(reinterpret_cast<void*>(address), bytes, kind);
}

// Where the quick comparisons of the calls say no.
void check_in_kernel(KernelView& view, std::uintptr_t address, std::size_t bytes, Access kind) {
  if (view.block->in_shared_array(address, bytes)) return check_race(view, address, bytes, kind);
  if (only_reads(kind) && inside(address, bytes, view.parameters, view.parameter_bytes)) return;
  if (inside(address, bytes, view.lanes, sizeof(VgpuLanes))) return;
  if (device_of(reinterpret_cast<void*>(address)) >= 0) {
    const Live live = view.memory->live(address);
    if (inside(address, bytes, live.begin, live.bytes)) {
      view.live = live;
      return;
    }
  }
  if (only_reads(kind) && constant(address, bytes)) return;
  fail_in_kernel(view, address, bytes, kind);
}

void check_on_host(std::uintptr_t address, std::size_t bytes, Access kind) {
  if (!in_window(address)) return;
  fail("the host " + access_text(address, bytes, kind) + "memory of device " +
       std::to_string(device_of(reinterpret_cast<void*>(address))));
}

inline __attribute__((always_inline)) void check(std::uintptr_t address, std::size_t bytes, Access kind) {
  KernelView* view = kernel_view;
  if (view == nullptr) [[likely]]
    return check_on_host(address, bytes, kind);
  if (inside(address, bytes, view->live.begin, view->live.bytes)) return;
  if (inside(address, bytes, view->stack, Fiber::stack_bytes)) return;
  if (inside(address, bytes, view->shared.begin, view->shared.bytes)) return check_race(*view, address, bytes, kind);
  check_in_kernel(*view, address, bytes, kind);
}

}  // namespace

void check_access(std::uintptr_t address, std::size_t bytes, Access kind) {
  check(address, bytes, kind);
}

}  // namespace vgpu

// ---- what the compiler calls: of files with kernels -fsanitize=thread's, of the others kernel-address's
extern "C" {

#define VGPU_CHECK(load, store, bytes)                \
  void load(std::uintptr_t address) {                 \
    vgpu::check(address, bytes, vgpu::Access::read);  \
  }                                                   \
  void store(std::uintptr_t address) {                \
    vgpu::check(address, bytes, vgpu::Access::write); \
  }
#define VGPU_CHECK_N(load, store)                                    \
  void load(std::uintptr_t address, std::size_t bytes) {             \
    if (bytes > 0) vgpu::check(address, bytes, vgpu::Access::read);  \
  }                                                                  \
  void store(std::uintptr_t address, std::size_t bytes) {            \
    if (bytes > 0) vgpu::check(address, bytes, vgpu::Access::write); \
  }
VGPU_CHECK(__asan_load1_noabort, __asan_store1_noabort, 1)
VGPU_CHECK(__asan_load2_noabort, __asan_store2_noabort, 2)
VGPU_CHECK(__asan_load4_noabort, __asan_store4_noabort, 4)
VGPU_CHECK(__asan_load8_noabort, __asan_store8_noabort, 8)
VGPU_CHECK(__asan_load16_noabort, __asan_store16_noabort, 16)
VGPU_CHECK_N(__asan_loadN_noabort, __asan_storeN_noabort)
void __asan_handle_no_return() {}
void __asan_before_dynamic_init(const char*) {}
void __asan_after_dynamic_init() {}

#if !defined(VGPU_TSAN)
VGPU_CHECK(__tsan_read1, __tsan_write1, 1)
VGPU_CHECK(__tsan_read2, __tsan_write2, 2)
VGPU_CHECK(__tsan_read4, __tsan_write4, 4)
VGPU_CHECK(__tsan_read8, __tsan_write8, 8)
VGPU_CHECK(__tsan_read16, __tsan_write16, 16)
VGPU_CHECK_N(__tsan_read_range, __tsan_write_range)
void __tsan_vptr_update(void*, void*) {}
void __tsan_init() {}
#endif
#undef VGPU_CHECK
#undef VGPU_CHECK_N

void vgpu_atomic(const void* p, std::size_t bytes) {
  if (!vgpu::kernel_view) vgpu::fail("an atomic operation outside of a kernel");
  vgpu::check(reinterpret_cast<std::uintptr_t>(p), bytes, vgpu::Access::atomic);
}

}  // extern "C"
