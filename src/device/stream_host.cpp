#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/last_words.hpp"
#include "device/isa.hpp"
#include "device/stream.hpp"

namespace forge {

namespace {

struct Work {
  StreamWork run;
  bool always = false;  // events: whoever waits for one is released after a failure too
};

// First in, first out, in a ring that grows when it is full and keeps its size.
class WorkQueue {
 public:
  bool empty() const { return count_ == 0; }
  void push(Work work) {
    if (count_ == ring_.size()) grow();
    ring_[(first_ + count_++) % ring_.size()] = std::move(work);
  }
  Work pop() {
    Work work = std::move(ring_[first_]);
    first_ = (first_ + 1) % ring_.size();
    --count_;
    return work;
  }

 private:
  void grow() {
    std::vector<Work> larger(2 * ring_.size());
    for (std::size_t i = 0; i < count_; ++i) larger[i] = std::move(ring_[(first_ + i) % ring_.size()]);
    ring_ = std::move(larger);
    first_ = 0;
  }

  std::vector<Work> ring_ = std::vector<Work>(64);
  std::size_t first_ = 0, count_ = 0;
};

}  // namespace

// A worker's queue of closures; `done` counts finished ones, so that an event is "queue position n was passed". Events
// may outlive their stream.
struct Event::Implementation {
  static constexpr auto nobody = std::numeric_limits<std::uint64_t>::max();

  std::mutex mutex;
  std::condition_variable more, less;  // of the worker, and of those who wait for it
  WorkQueue queue;
  std::uint64_t given = 0, done = 0;
  std::uint64_t awaited = nobody;  // the first position that somebody waits for: work before it wakes nobody
  std::exception_ptr error;
  bool stopping = false;

  void push(StreamWork work, bool always) {
    {
      std::lock_guard lock(mutex);
      queue.push({std::move(work), always});
      ++given;
    }
    more.notify_one();
  }

  void wait_for(std::uint64_t position) {
    std::unique_lock lock(mutex);
    wait_for(position, lock);
  }
  void wait_for(std::uint64_t position, std::unique_lock<std::mutex>& lock) {
    while (done < position) {
      awaited = std::min(awaited, position);
      less.wait(lock);
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      more.wait(lock, [this] { return stopping || !queue.empty(); });
      if (queue.empty()) return;
      Work work = queue.pop();
      const bool failed = error != nullptr;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        if (!failed || work.always) work.run();
      } catch (...) {
        LastWords::speak_now();  // other ranks may wait for what comes behind, and this one for them
        thrown = std::current_exception();
      }
      work.run.clear();
      lock.lock();
      if (thrown && !error) error = thrown;
      if (++done < awaited) continue;
      awaited = nobody;
      less.notify_all();
    }
  }
};

struct Stream::Implementation {
  std::shared_ptr<Event::Implementation> queue;  // null: work runs in the calling thread
  std::thread worker;

  explicit Implementation(Kind kind) {
    if (kind == Kind::Inline) return;
    queue = std::make_shared<Event::Implementation>();
    worker = std::thread([queue = queue] { queue->run(); });
  }
  ~Implementation() {
    if (!queue) return;
    {
      std::lock_guard lock(queue->mutex);
      queue->stopping = true;
    }
    queue->more.notify_one();
    worker.join();
  }
};

Stream::Stream(int threads, Kind kind) : threads_(threads), impl_(std::make_unique<Implementation>(kind)) {
  require(threads >= 1, "a stream needs at least one thread");
  flush_denormals();
}

Stream::~Stream() = default;

bool Stream::runs_inline() const {
  return !impl_->queue;
}

void* Stream::native() const {
  return nullptr;
}

void Stream::submit(StreamWork work) {
  if (impl_->queue)
    impl_->queue->push(std::move(work), false);
  else
    work();
}

void Stream::synchronize() {
  if (!impl_->queue) return;
  Event::Implementation& queue = *impl_->queue;
  std::unique_lock lock(queue.mutex);
  while (queue.done < queue.given) queue.wait_for(queue.given, lock);
  if (queue.error) std::rethrow_exception(std::exchange(queue.error, nullptr));
}

// What runs in the calling thread is done by the time that it is recorded.
void Event::record(Stream& stream) {
  impl_ = stream.impl_->queue;
  if (!impl_) return;
  std::lock_guard lock(impl_->mutex);
  position_ = impl_->given;
}

void Event::wait(Stream& stream) const {
  if (!impl_) return;
  if (stream.runs_inline()) return impl_->wait_for(position_);
  stream.impl_->queue->push([point = impl_, position = position_] { point->wait_for(position); }, true);
}

void Event::synchronize() const {
  if (impl_) impl_->wait_for(position_);
}

bool Event::ready() const {
  if (!impl_) return true;
  std::lock_guard lock(impl_->mutex);
  return impl_->done >= position_;
}

}  // namespace forge
