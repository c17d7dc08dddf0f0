#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace forge {

// A closure that a stream runs once. It lives in the piece of work itself: giving work to a stream asks for no memory.
class StreamWork {
 public:
  static constexpr std::size_t capacity = 768;  // of the largest: a backward pass of attention

  StreamWork() = default;
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, StreamWork>)
      StreamWork(F&& f) {  // NOLINT: a stream takes any closure
    using Closure = std::remove_cvref_t<F>;
    static_assert(sizeof(Closure) <= capacity && alignof(Closure) <= alignof(std::max_align_t),
                  "the closure of a piece of work is too large: pass less by value, or raise the capacity");
    new (storage_) Closure(std::forward<F>(f));
    call_ = [](void* closure) { (*static_cast<Closure*>(closure))(); };
    relocate_ = [](void* from, void* to) {
      auto* closure = static_cast<Closure*>(from);
      if (to) new (to) Closure(std::move(*closure));
      closure->~Closure();
    };
  }
  StreamWork(StreamWork&& other) noexcept { take(other); }
  StreamWork& operator=(StreamWork&& other) noexcept {
    if (this != &other) {
      clear();
      take(other);
    }
    return *this;
  }
  ~StreamWork() { clear(); }

  void operator()() { call_(storage_); }
  // Ends the closure, and its captures.
  void clear() {
    if (relocate_) relocate_(storage_, nullptr);
    call_ = nullptr;
    relocate_ = nullptr;
  }

 private:
  void take(StreamWork& other) {
    if (other.relocate_) other.relocate_(other.storage_, storage_);
    call_ = std::exchange(other.call_, nullptr);
    relocate_ = std::exchange(other.relocate_, nullptr);
  }

  alignas(std::max_align_t) std::byte storage_[capacity];
  void (*call_)(void*) = nullptr;
  void (*relocate_)(void* from, void* to) = nullptr;  // to null: destroys
};

}  // namespace forge
