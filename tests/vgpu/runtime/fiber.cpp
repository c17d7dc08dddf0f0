#include "fiber.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "cuda_runtime.h"
#include "fail.hpp"

namespace vgpu {

namespace {

constexpr std::uint64_t guard = 0x5afe57acc5afe57au;

char* make_stack() {
  void* p = mmap(nullptr, Fiber::stack_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (p == MAP_FAILED) fail(std::string("no stack for a thread of a kernel: ") + std::strerror(errno));
  std::memcpy(p, &guard, sizeof guard);
  return static_cast<char*>(p);
}

// ThreadSanitizer follows each stack by itself: of a thread's own one it knows, the others are made known.
#if defined(VGPU_TSAN)
extern "C" void* __tsan_get_current_fiber();
extern "C" void* __tsan_create_fiber(unsigned flags);
extern "C" void __tsan_destroy_fiber(void* fiber);
extern "C" void __tsan_switch_to_fiber(void* fiber, unsigned flags);

VGPU_UNCHECKED void tell_sanitizer(void*& from, void*& to) {
  if (!from) from = __tsan_get_current_fiber();
  if (!to) to = __tsan_create_fiber(0);
  __tsan_switch_to_fiber(to, 0);
}
void forget(void* fiber) {
  if (fiber) __tsan_destroy_fiber(fiber);
}
#else
void tell_sanitizer(void*&, void*&) {}
void forget(void*) {}
#endif

}  // namespace

#if defined(__x86_64__)

struct Fiber::Context {};

// void vgpu_switch(void** from, void* to): the registers that a function preserves (System V ABI, AMD64, 3.2.1) stand
// on the stack that is left; *from points to them.
asm(R"(
.text
.globl vgpu_switch
.hidden vgpu_switch
.type vgpu_switch, @function
vgpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size vgpu_switch, . - vgpu_switch
)");
extern "C" void vgpu_switch(void** from, void* to);

// The stack of a fiber that hasn't run: six registers, the body as the address to return to, and an end for those that
// walk through stacks. A function starts with its stack 8 bytes off a multiple of 16.
Fiber::Fiber(void (*body)(), std::size_t number) : stack_(make_stack()) {
  const std::size_t moved = number * 704 % (stack_bytes / 4) / 64 * 64;
  auto* top = reinterpret_cast<std::uint64_t*>(stack_ + stack_bytes - moved) - 10;
  std::memset(top, 0, 10 * sizeof *top);
  top[6] = reinterpret_cast<std::uint64_t>(body);
  stopped_ = top;
  static_assert(stack_bytes % 16 == 0);
}

VGPU_UNCHECKED void Fiber::change(Fiber& from, Fiber& to) {
  tell_sanitizer(from.known_, to.known_);
  vgpu_switch(&from.stopped_, to.stopped_);
}

#else

struct Fiber::Context {
  ucontext_t registers{};
};

Fiber::Fiber(void (*body)(), std::size_t) : stack_(make_stack()), context_(std::make_unique<Context>()) {
  getcontext(&context_->registers);
  context_->registers.uc_stack.ss_sp = stack_;
  context_->registers.uc_stack.ss_size = stack_bytes;
  makecontext(&context_->registers, body, 0);
}

VGPU_UNCHECKED void Fiber::change(Fiber& from, Fiber& to) {
  tell_sanitizer(from.known_, to.known_);
  if (!from.context_) from.context_ = std::make_unique<Context>();
  swapcontext(&from.context_->registers, &to.context_->registers);
}

#endif

Fiber::Fiber() = default;

Fiber::~Fiber() {
  if (stack_) forget(known_);
  if (stack_) munmap(stack_, stack_bytes);
}

bool Fiber::intact() const {
  return std::memcmp(stack_, &guard, sizeof guard) == 0;
}

}  // namespace vgpu
