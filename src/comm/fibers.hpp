#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

namespace forge {

// Functions that take turns in one thread, each on a stack of its own: one runs until it sleeps on an address, and
// again when another one has woken this address. They go on in the order of waking, so that every run is the same. They
// share thread-local state, but for the exceptions that are being handled.
class Fibers {
 public:
  // body(0) … body(count − 1), which throw nothing; of their stacks the touched pages take memory.
  Fibers(int count, std::function<void(int)> body, std::size_t stack_bytes = std::size_t{256} << 10);
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  // Runs until all have ended. `stuck` is called where all that are left sleep, and wakes some.
  void run(const std::function<void()>& stuck);

  // The Fibers of the fiber that runs here; null: none does.
  static Fibers* current();
  // To be called in a fiber.
  void sleep(const void* address);
  // To be called in a fiber: all others that can run have a turn first.
  void yield();
  // To be called in a fiber, or in `stuck`.
  void wake(const void* address);

 private:
  struct Fiber;
  static void start();
  void resume(int number);
  void leave();

  std::function<void(int)> body_;
  std::size_t stack_bytes_;  // each, its guard page included
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::deque<int> runnable_;
  std::unordered_map<const void*, std::vector<int>> asleep_;
  int running_ = -1, left_ = 0;
  std::unique_ptr<Fiber> scheduler_;  // where resume() was called
  void* stacks_ = nullptr;
};

}  // namespace forge
