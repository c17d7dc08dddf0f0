#include "comm/meeting.hpp"

#include <cstring>

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

Meeting::Meeting(std::shared_ptr<ThreadWorld> world, int size)
    : world_(world), size_(size), shown_(to_size(size)), on_failure_(std::move(world), [this] {
        std::lock_guard lock(mutex_);
        changed_.notify_all();
      }) {}

void Meeting::arrive(bool may_fail) {
  std::unique_lock lock(mutex_);
  if (may_fail) world_->check();
  const std::int64_t mine = round_;
  if (++arrived_ == size_) {
    arrived_ = 0;
    ++round_;
    lock.unlock();
    changed_.notify_all();
    return;
  }
  // Not an atomic's wait, which yields some times first: with more ranks than cores that takes time from those who
  // compute.
  changed_.wait(lock, [&] { return round_ != mine || (may_fail && world_->failed()); });
  if (round_ != mine) return;
  // The round has not ended, and this rank's leaving it keeps it so.
  --arrived_;
  world_->check();
}

Mailbox::Mailbox(std::shared_ptr<ThreadWorld> world)
    : world_(world), on_failure_(std::move(world), [this] {
        std::lock_guard lock(mutex_);
        changed_.notify_all();
      }) {}

void Mailbox::show(Message& message) {
  std::lock_guard lock(mutex_);
  shown_[{message.from, message.to}].push_back(&message);
  changed_.notify_all();
}

void Mailbox::wait(const Message& message) {
  using State = Message::State;
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return message.state == State::taken || (message.state == State::shown && world_->failed()); });
  if (message.state == State::shown) world_->check();
}

void Mailbox::abandon(const Message& message) {
  std::unique_lock lock(mutex_);
  std::erase(shown_[{message.from, message.to}], &message);
  changed_.wait(lock, [&] { return message.state != Message::State::being_copied; });
}

void Mailbox::take(int from, int to, std::byte* data, std::size_t bytes) {
  std::unique_lock lock(mutex_);
  auto& queue = shown_[{from, to}];
  changed_.wait(lock, [&] { return !queue.empty() || world_->failed(); });
  world_->check();
  Message& message = *queue.front();
  if (message.bytes != bytes)
    throw Error("rank " + std::to_string(to) + " expects " + std::to_string(bytes) + " bytes of rank " +
                std::to_string(from) + ", which sends " + std::to_string(message.bytes));
  queue.pop_front();
  message.state = Message::State::being_copied;
  lock.unlock();
  std::memcpy(data, message.data, bytes);
  lock.lock();
  message.state = Message::State::taken;
  changed_.notify_all();
}

}  // namespace forge
