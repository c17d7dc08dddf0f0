#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/to_size.hpp"

namespace forge {

// Whether ranks that are threads of one process may still wait for each other. Shared by all of their groups.
class ThreadWorld {
 public:
  // To be called in a handler. Wakes whoever waits, in any group; the first call's text is kept.
  void fail(const std::string& text);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Throws RankFailed after fail().
  void check() const;

 private:
  friend class OnFailure;
  std::mutex mutex_;
  std::string text_;  // written once, before failed_
  std::atomic<bool> failed_{false};
  std::list<std::function<void()>> wakes_;
};

// Calls `wake` at the world's fail(), for as long as it lives.
class OnFailure {
 public:
  OnFailure(std::shared_ptr<ThreadWorld> world, std::function<void()> wake);
  ~OnFailure();
  OnFailure(const OnFailure&) = delete;
  OnFailure& operator=(const OnFailure&) = delete;

 private:
  std::shared_ptr<ThreadWorld> world_;
  std::list<std::function<void()>>::iterator place_;
};

// A word that threads sleep on until it changes, by Linux's futex: a condition variable's waiters would wake to queue
// for its mutex, and an atomic's wait yields some times first, which takes time from those who compute where ranks are
// more than cores.
// Fibers (comm/fibers.hpp) take turns instead, and are woken by fibers of their thread alone.
class WakeWord {
 public:
  std::uint32_t read() const { return word_.load(std::memory_order_acquire); }
  // Returns at once when the word differs from `read`, and now and then without any reason.
  void sleep(std::uint32_t read) const;
  void wake_all();

 private:
  std::atomic<std::uint32_t> word_{0};
};

// Where the ranks of a group meet: each shows its values to the others, all read, and nobody leaves before all have
// read, so that these values stay valid even when a rank fails meanwhile.
class Meeting {
 public:
  Meeting(std::shared_ptr<ThreadWorld> world, int size);

  // Every rank calls with its own pointer; read(pointers) runs in each of them once all are there, and must not wait
  // for another rank. Throws RankFailed when a rank failed before all were there.
  template <class Read>
  void meet(int rank, const void* mine, Read read) {
    shown_[to_size(rank)] = mine;
    arrive(true);
    const Leave leave{*this};
    read(shown_);
  }
  // Every rank calls with its own pointer; act(pointers) runs once, in the rank that comes last, and may write
  // where they point. Nobody leaves before it has. It must not wait for another rank.
  template <class Act>
  void meet_once(int rank, const void* mine, Act act) {
    shown_[to_size(rank)] = mine;
    arrive(
        true, [](void* a, const std::vector<const void*>& shown) { (*static_cast<Act*>(a))(shown); }, &act);
  }

 private:
  using Call = void (*)(void* act, const std::vector<const void*>& shown);
  struct Leave {
    Meeting& meeting;
    ~Leave() { meeting.arrive(false); }
  };
  // Returns when all ranks have arrived; withdraws and throws at a failure if it may. The last one calls call(act,
  // pointers), if there is one, before the others go on.
  void arrive(bool may_fail, Call call = nullptr, void* act = nullptr);

  std::shared_ptr<ThreadWorld> world_;
  int size_;
  std::vector<const void*> shown_;
  std::mutex mutex_;
  int arrived_ = 0;
  std::atomic<std::int64_t> round_{0};
  WakeWord changed_;
  OnFailure on_failure_;
};

// Messages between two ranks: a sender shows its memory and waits until the receiver has copied it.
class Mailbox {
 public:
  explicit Mailbox(std::shared_ptr<ThreadWorld> world);

  struct Message {
    int from, to;
    const std::byte* data;
    std::size_t bytes;
    enum class State { shown, being_copied, taken } state = State::shown;
  };
  // The message is the sender's, and stays valid until wait() has ended.
  void show(Message& message);
  // Throws RankFailed when the message will not be taken any more.
  void wait(const Message& message);
  // Takes the message back, or waits for the end of its copying.
  void abandon(const Message& message);
  // Copies the oldest message between the two; its length must be `bytes`.
  void take(int from, int to, std::byte* data, std::size_t bytes);

 private:
  // The way from one rank to another: waiters on other ways sleep on.
  struct Way {
    std::deque<Message*> shown;
    WakeWord changed;
  };
  // Sleeps until done(), which is called with the lock.
  template <class Done>
  static void wait_until(std::unique_lock<std::mutex>& lock, Way& way, Done done);
  Way& way(const Message& message) { return ways_[{message.from, message.to}]; }

  std::shared_ptr<ThreadWorld> world_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, Way> ways_;
  OnFailure on_failure_;
};

}  // namespace forge
