#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace vgpu {

// A stack of its own, and where its work stopped. Switching is a call: it saves all that a called function must
// preserve, nothing else, and the system isn't asked. Fibers stay on the thread that made them.
class Fiber {
 public:
  static constexpr std::size_t stack_bytes = 128 << 10;

  // The thread's own stack: the one to come back to.
  Fiber();
  // `number` moves the top of the stack: those of many fibers would all meet in a few lines of the caches.
  explicit Fiber(void (*body)(), std::size_t number = 0);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves the work of `from`, goes on with `to`. A body must not return.
  static void change(Fiber& from, Fiber& to);

  std::uintptr_t stack() const { return reinterpret_cast<std::uintptr_t>(stack_); }
  // False where the stack was too small for the work on it.
  bool intact() const;

 private:
  struct Context;
  char* stack_ = nullptr;
  void* stopped_ = nullptr;           // where its registers stand
  void* known_ = nullptr;             // to ThreadSanitizer
  std::unique_ptr<Context> context_;  // other processors
};

}  // namespace vgpu
