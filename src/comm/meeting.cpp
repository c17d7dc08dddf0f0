#include "comm/meeting.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "comm/fibers.hpp"
#include "comm/thread_communicator.hpp"
#include "core/last_words.hpp"

namespace forge {

void ThreadWorld::fail(const std::string& text) {
  LastWords::speak_now();
  std::lock_guard lock(mutex_);
  if (failed_.load()) return;
  text_ = text;
  failed_.store(true, std::memory_order_release);
  for (const auto& wake : wakes_) wake();
}

void ThreadWorld::check() const {
  if (failed()) throw RankFailed("another rank failed: " + text_);
}

OnFailure::OnFailure(std::shared_ptr<ThreadWorld> world, std::function<void()> wake) : world_(std::move(world)) {
  std::lock_guard lock(world_->mutex_);
  place_ = world_->wakes_.insert(world_->wakes_.end(), std::move(wake));
}

OnFailure::~OnFailure() {
  std::lock_guard lock(world_->mutex_);
  world_->wakes_.erase(place_);
}

void WakeWord::sleep(std::uint32_t read) const {
  if (Fibers* const fibers = Fibers::current()) {
    if (word_.load() == read) fibers->sleep(&word_);
    return;
  }
  syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, read, nullptr, nullptr, 0);
}

void WakeWord::wake_all() {
  word_.fetch_add(1, std::memory_order_acq_rel);
  if (Fibers* const fibers = Fibers::current()) return fibers->wake(&word_);
  syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

Meeting::Meeting(std::shared_ptr<ThreadWorld> world, int size)
    : world_(world),
      size_(size),
      shown_(to_size(size)),
      on_failure_(std::move(world), [this] { changed_.wake_all(); }) {}

void Meeting::arrive(bool may_fail, Call call, void* act) {
  std::int64_t mine = 0;
  {
    std::unique_lock lock(mutex_);
    if (may_fail) world_->check();
    mine = round_.load();
    if (arrived_ + 1 == size_) {
      if (call) call(act, shown_);
      arrived_ = 0;
      round_.store(mine + 1);
      lock.unlock();
      changed_.wake_all();
      return;
    }
    ++arrived_;
  }
  for (;;) {
    const std::uint32_t read = changed_.read();
    if (round_.load() != mine) return;
    if (may_fail && world_->failed()) break;
    changed_.sleep(read);
  }
  std::lock_guard lock(mutex_);
  if (round_.load() != mine) return;
  // The round has not ended, and this rank's leaving it keeps it so.
  --arrived_;
  world_->check();
}

Mailbox::Mailbox(std::shared_ptr<ThreadWorld> world)
    : world_(world), on_failure_(std::move(world), [this] {
        std::lock_guard lock(mutex_);
        for (auto& [ranks, way] : ways_) way.changed.wake_all();
      }) {}

template <class Done>
void Mailbox::wait_until(std::unique_lock<std::mutex>& lock, Way& way, Done done) {
  while (!done()) {
    const std::uint32_t read = way.changed.read();
    lock.unlock();
    way.changed.sleep(read);
    lock.lock();
  }
}

void Mailbox::show(Message& message) {
  std::lock_guard lock(mutex_);
  way(message).shown.push_back(&message);
  way(message).changed.wake_all();
}

void Mailbox::wait(const Message& message) {
  using State = Message::State;
  std::unique_lock lock(mutex_);
  wait_until(lock, way(message),
             [&] { return message.state == State::taken || (message.state == State::shown && world_->failed()); });
  if (message.state == State::shown) world_->check();
}

void Mailbox::abandon(const Message& message) {
  std::unique_lock lock(mutex_);
  std::erase(way(message).shown, &message);
  wait_until(lock, way(message), [&] { return message.state != Message::State::being_copied; });
}

void Mailbox::take(int from, int to, std::byte* data, std::size_t bytes) {
  std::unique_lock lock(mutex_);
  Way& here = ways_[{from, to}];
  wait_until(lock, here, [&] { return !here.shown.empty() || world_->failed(); });
  world_->check();
  Message& message = *here.shown.front();
  if (message.bytes != bytes)
    throw Error("rank " + std::to_string(to) + " expects " + std::to_string(bytes) + " bytes of rank " +
                std::to_string(from) + ", which sends " + std::to_string(message.bytes));
  here.shown.pop_front();
  message.state = Message::State::being_copied;
  lock.unlock();
  std::memcpy(data, message.data, bytes);
  lock.lock();
  message.state = Message::State::taken;
  here.changed.wake_all();
}

}  // namespace forge
