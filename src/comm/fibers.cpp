#include "comm/fibers.hpp"

#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

thread_local Fibers* running_fibers = nullptr;

// Exceptions that are being handled, and the number of those on their way: the C++ runtime keeps both for each thread
// (Itanium C++ ABI, II 2.2.2), and a fiber may sleep in a handler or in a destructor.
struct Handled {
  void* caught = nullptr;
  unsigned uncaught = 0;

  void exchange() {
    auto* const here = reinterpret_cast<std::byte*>(abi::__cxa_get_globals());
    Handled other;
    std::memcpy(&other, here, sizeof other);
    std::memcpy(here, this, sizeof *this);
    *this = other;
  }
};

}  // namespace

struct Fibers::Fiber {
  ucontext_t context;
  Handled handled;
  bool ended = false;
};

// Stacks side by side, each behind a page that nobody may touch.
Fibers::Fibers(int count, std::function<void(int)> body, std::size_t stack_bytes)
    : body_(std::move(body)), left_(count), scheduler_(std::make_unique<Fiber>()) {
  const auto page = to_size(sysconf(_SC_PAGESIZE));
  stack_bytes_ = page + stack_bytes;
  stacks_ = mmap(nullptr, to_size(count) * stack_bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stacks_ == MAP_FAILED) throw Error("no address space for the stacks of " + std::to_string(count) + " fibers");
  for (int i = 0; i < count; ++i) {
    std::byte* const stack = static_cast<std::byte*>(stacks_) + to_size(i) * stack_bytes_;
    if (mprotect(stack, page, PROT_NONE) != 0) throw Error("no pages between the stacks of fibers");
    auto fiber = std::make_unique<Fiber>();
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = stack + page;
    fiber->context.uc_stack.ss_size = stack_bytes;
    fiber->context.uc_link = &scheduler_->context;
    makecontext(&fiber->context, &Fibers::start, 0);
    fibers_.push_back(std::move(fiber));
    runnable_.push_back(i);
  }
}

Fibers::~Fibers() {
  munmap(stacks_, fibers_.size() * stack_bytes_);
}

Fibers* Fibers::current() {
  return running_fibers;
}

void Fibers::start() {
  Fibers& fibers = *running_fibers;
  const int number = fibers.running_;
  fibers.body_(number);
  fibers.fibers_[to_size(number)]->ended = true;
}

void Fibers::resume(int number) {
  Fiber& fiber = *fibers_[to_size(number)];
  running_ = number;
  fiber.handled.exchange();
  if (swapcontext(&scheduler_->context, &fiber.context) != 0) throw Error("a fiber's stack cannot be entered");
  fiber.handled.exchange();
  left_ -= fiber.ended;
}

void Fibers::run(const std::function<void()>& stuck) {
  Fibers* const before = std::exchange(running_fibers, this);
  while (left_ > 0) {
    if (runnable_.empty()) {
      stuck();
      require(!runnable_.empty(), "fibers sleep that nobody wakes");
    }
    const int next = runnable_.front();
    runnable_.pop_front();
    resume(next);
  }
  running_fibers = before;
}

void Fibers::leave() {
  Fiber& fiber = *fibers_[to_size(running_)];
  if (swapcontext(&fiber.context, &scheduler_->context) != 0) throw Error("a fiber's stack cannot be left");
}

void Fibers::sleep(const void* address) {
  asleep_[address].push_back(running_);
  leave();
}

void Fibers::yield() {
  if (runnable_.empty()) return;
  runnable_.push_back(running_);
  leave();
}

void Fibers::wake(const void* address) {
  const auto found = asleep_.find(address);
  if (found == asleep_.end()) return;
  runnable_.insert(runnable_.end(), found->second.begin(), found->second.end());
  asleep_.erase(found);
}

}  // namespace forge
