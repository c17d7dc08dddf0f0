#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "core/last_words.hpp"
#include "device/isa.hpp"
#include "device/stream.hpp"

namespace forge {

// A queue of closures; `done` counts finished ones, so that an event is "queue position n was passed".
struct Stream::Implementation {
  Kind kind;
  std::mutex mutex;
  std::condition_variable changed;
  struct Work {
    std::function<void()> run;
    bool always;  // events: whoever waits for one is released after a failure too
  };
  std::deque<Work> queue;
  std::uint64_t given = 0, done = 0;
  std::exception_ptr error;
  bool stopping = false;
  std::thread worker;

  explicit Implementation(Kind k) : kind(k) {
    if (kind == Kind::Worker) worker = std::thread([this] { run(); });
  }
  ~Implementation() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    if (worker.joinable()) worker.join();
  }

  void push(std::function<void()> work, bool always) {
    if (kind == Kind::Inline) return work();
    {
      std::lock_guard lock(mutex);
      queue.push_back({std::move(work), always});
      ++given;
    }
    changed.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || !queue.empty(); });
      if (queue.empty()) return;
      auto work = std::move(queue.front());
      queue.pop_front();
      const bool failed = error != nullptr;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        if (!failed || work.always) work.run();
      } catch (...) {
        LastWords::speak_now();  // other ranks may wait for what comes behind, and this one for them
        thrown = std::current_exception();
      }
      work.run = nullptr;
      lock.lock();
      if (thrown && !error) error = thrown;
      ++done;
      changed.notify_all();
    }
  }
};

Stream::Stream(int threads, Kind kind) : threads_(threads), impl_(std::make_unique<Implementation>(kind)) {
  require(threads >= 1, "a stream needs at least one thread");
  flush_denormals();
}

Stream::~Stream() = default;

bool Stream::runs_inline() const {
  return impl_->kind == Kind::Inline;
}

void* Stream::native() const {
  return nullptr;
}

void Stream::submit(std::function<void()> work) {
  impl_->push(std::move(work), false);
}

void Stream::synchronize() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return impl_->done == impl_->given; });
  if (impl_->error) std::rethrow_exception(std::exchange(impl_->error, nullptr));
}

// Set once the stream has reached the point; each record() makes a new one, so that waiters of the old one stay right.
struct Event::Implementation {
  std::mutex mutex;
  std::condition_variable changed;
  bool passed = false;

  void pass() {
    std::lock_guard lock(mutex);
    passed = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return passed; });
  }
};

Event::Event() = default;
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(Stream& stream) {
  impl_ = std::make_shared<Implementation>();
  stream.impl_->push([point = impl_] { point->pass(); }, true);
}

void Event::wait(Stream& stream) const {
  if (impl_) stream.impl_->push([point = impl_] { point->wait(); }, true);
}

void Event::synchronize() const {
  if (impl_) impl_->wait();
}

bool Event::ready() const {
  if (!impl_) return true;
  std::lock_guard lock(impl_->mutex);
  return impl_->passed;
}

}  // namespace forge
