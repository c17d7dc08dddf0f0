#include "comm/thread_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/add.hpp"
#include "comm/fibers.hpp"
#include "comm/meeting.hpp"
#include "core/last_words.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"

namespace forge {

class ThreadCommunicator::Group {
 public:
  Group(std::shared_ptr<ThreadWorld> w, int size) : world(w), device(w, size), host(w, size), mail(w) {}

  std::shared_ptr<ThreadWorld> world;
  Meeting device, host;
  Mailbox mail;
};

namespace {

// What a rank shows in a collective on device memory.
struct Call {
  Collective operation;
  const std::byte* in;
  std::byte* out;
  std::int64_t count;
  DType type;
  int root = 0;
};

const Call& call_of(const std::vector<const void*>& calls, int rank) {
  return *static_cast<const Call*>(calls[to_size(rank)]);
}

void check_same(const std::vector<const void*>& calls, int rank) {
  const Call& mine = call_of(calls, rank);
  for (std::size_t r = 0; r < calls.size(); ++r) {
    const Call& other = call_of(calls, static_cast<int>(r));
    if (other.operation == mine.operation && other.count == mine.count && other.type == mine.type &&
        other.root == mine.root)
      continue;
    const auto text = [](const Call& c) {
      return std::string(name_of(c.operation)) + " of " + std::to_string(c.count) + " " + std::string(name_of(c.type)) +
             (c.operation == Collective::broadcast ? " from rank " + std::to_string(c.root) : "");
    };
    throw Error("the ranks of a group call different operations: rank " + std::to_string(rank) + " " + text(mine) +
                ", rank " + std::to_string(r) + " " + text(other));
  }
}

// Elements from `begin` on of all ranks.
std::vector<const std::byte*> parts_of_ranks(const std::vector<const void*>& calls, std::int64_t begin, DType type) {
  std::vector<const std::byte*> parts;
  for (std::size_t r = 0; r < calls.size(); ++r)
    parts.push_back(call_of(calls, static_cast<int>(r)).in + to_size(begin) * size_of(type));
  return parts;
}

}  // namespace

ThreadCommunicator::ThreadCommunicator(std::shared_ptr<Group> group, int rank, int size)
    : Communicator(rank, size), group_(std::move(group)) {}

ThreadCommunicator::~ThreadCommunicator() = default;

// Queues f(group). Whatever it throws ends the waiting of every other rank: this one might not look at its stream soon.
template <class F>
void ThreadCommunicator::enqueue(Stream& stream, F f) {
  require(!stream.native(), "ranks that are threads need the CPU build");
  stream.submit([group = group_, f = std::move(f)] {
    try {
      f(*group);
    } catch (const std::exception& error) {
      group->world->fail(error.what());
      throw;
    }
  });
}

// Each rank combines its own part of everyone's buffer and writes it into all of them.
template <class Combine>
void ThreadCommunicator::reduce_all(Stream& stream, std::byte* data, std::int64_t count, DType type, Combine combine) {
  enqueue(stream, [=, rank = rank(), size = size()](Group& group) {
    const Call mine{Collective::all_reduce, data, data, count, type};
    group.device.meet(rank, &mine, [&](const std::vector<const void*>& calls) {
      check_same(calls, rank);
      const Cut cut{count, size};
      const std::size_t offset = to_size(cut.begin(rank)) * size_of(type);
      const std::size_t bytes = to_size(cut.size(rank)) * size_of(type);
      combine(data + offset, parts_of_ranks(calls, cut.begin(rank), type), cut.size(rank), type);
      for (int r = 0; r < size; ++r)
        if (r != rank && bytes > 0) std::memcpy(call_of(calls, r).out + offset, data + offset, bytes);
    });
  });
}

void ThreadCommunicator::do_all_reduce(Stream& stream, std::byte* data, std::int64_t count, DType type) {
  reduce_all(stream, data, count, type, sum_on_host);
}
void ThreadCommunicator::do_all_reduce_max(Stream& stream, std::byte* data, std::int64_t count, DType type) {
  reduce_all(stream, data, count, type, max_on_host);
}

void ThreadCommunicator::do_all_gather(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count,
                                       DType type) {
  enqueue(stream, [=, rank = rank(), size = size()](Group& group) {
    const Call mine{Collective::all_gather, in, out, count, type};
    group.device.meet(rank, &mine, [&](const std::vector<const void*>& calls) {
      check_same(calls, rank);
      const std::size_t bytes = to_size(count) * size_of(type);
      for (int r = 0; r < size; ++r) {
        std::byte* to = out + to_size(r) * bytes;
        const std::byte* from = call_of(calls, r).in;
        if (to != from) std::memcpy(to, from, bytes);
      }
    });
  });
}

void ThreadCommunicator::do_reduce_scatter(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count,
                                           DType type) {
  enqueue(stream, [=, rank = rank()](Group& group) {
    const Call mine{Collective::reduce_scatter, in, out, count, type};
    group.device.meet(rank, &mine, [&](const std::vector<const void*>& calls) {
      check_same(calls, rank);
      sum_on_host(out, parts_of_ranks(calls, rank * count, type), count, type);
    });
  });
}

void ThreadCommunicator::do_broadcast(Stream& stream, std::byte* data, std::int64_t count, DType type, int root) {
  enqueue(stream, [=, rank = rank()](Group& group) {
    const Call mine{Collective::broadcast, data, data, count, type, root};
    group.device.meet(rank, &mine, [&](const std::vector<const void*>& calls) {
      check_same(calls, rank);
      if (rank != root) std::memcpy(data, call_of(calls, root).in, to_size(count) * size_of(type));
    });
  });
}

namespace {

// Messages that were shown stay until they are taken, or given up, whatever happens between.
class Shown {
 public:
  explicit Shown(Mailbox& mail) : mail_(mail) {}
  ~Shown() {
    for (const auto& message : messages_) mail_.abandon(message);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  void add(Mailbox::Message message) { mail_.show(messages_.emplace_back(message)); }
  void wait() {
    for (const auto& message : messages_) mail_.wait(message);
  }

 private:
  Mailbox& mail_;
  std::list<Mailbox::Message> messages_;
};

}  // namespace

void ThreadCommunicator::do_exchange(Stream& stream, std::span<const Transfer> list) {
  enqueue(stream, [transfers = std::vector(list.begin(), list.end()), rank = rank()](Group& group) {
    const auto bytes = [](const Transfer& t) { return to_size(t.count) * size_of(t.type); };
    Shown sends(group.mail);
    for (const Transfer& t : transfers)
      if (t.sends) sends.add({rank, t.peer, t.data, bytes(t)});
    for (const Transfer& t : transfers)
      if (!t.sends) group.mail.take(t.peer, rank, t.data, bytes(t));
    sends.wait();
  });
}

void ThreadCommunicator::do_gather_host(const std::byte* in, std::byte* out, std::size_t bytes) {
  group_->host.meet(rank(), in, [&](const std::vector<const void*>& shown) {
    for (std::size_t r = 0; r < shown.size(); ++r) std::memcpy(out + r * bytes, shown[r], bytes);
  });
}

void ThreadCommunicator::do_broadcast_host(std::byte* data, std::size_t bytes, int root) {
  group_->host.meet(rank(), data, [&](const std::vector<const void*>& shown) {
    if (rank() != root) std::memcpy(data, shown[to_size(root)], bytes);
  });
}

void ThreadCommunicator::do_collect_host(const std::string& text, int root,
                                         const std::function<void(const std::string&)>& take) {
  group_->host.meet(rank(), &text, [&](const std::vector<const void*>& shown) {
    if (rank() != root) return;
    for (const void* p : shown) take(*static_cast<const std::string*>(p));
  });
}

void ThreadCommunicator::do_collect_host(std::int64_t number, std::int64_t* all, int root) {
  group_->host.meet(rank(), &number, [&](const std::vector<const void*>& shown) {
    if (rank() != root) return;
    for (const void* p : shown) *all++ = *static_cast<const std::int64_t*>(p);
  });
}

// One rank combines for all.
template <class T>
void ThreadCommunicator::reduce_values(std::span<T> values, HostReduction reduction) {
  group_->host.meet_once(rank(), &values, [&](const std::vector<const void*>& shown) {
    const auto of_rank = [&](int r) { return *static_cast<const std::span<T>*>(shown[to_size(r)]); };
    const std::span<T> result = of_rank(0);
    for (int r = 1; r < size(); ++r)
      require(of_rank(r).size() == result.size(), "the ranks of a group combine different numbers of values");
    combine_ranks(result, size(), reduction, [&](int r) { return of_rank(r).data(); });
    for (int r = 1; r < size(); ++r) std::ranges::copy(result, of_rank(r).begin());
  });
}

void ThreadCommunicator::do_reduce_host(std::span<double> values, HostReduction reduction) {
  reduce_values(values, reduction);
}
void ThreadCommunicator::do_reduce_host(std::span<std::int64_t> values, HostReduction reduction) {
  reduce_values(values, reduction);
}

std::unique_ptr<Communicator> ThreadCommunicator::do_split(int color, int key) {
  struct Choice {
    int color, key, rank = 0, size = 0;
    std::shared_ptr<Group> group = nullptr;
  };
  Choice mine{color, key};
  group_->host.meet_once(rank(), &mine, [&](const std::vector<const void*>& shown) {
    std::vector<Choice*> all;  // each rank's own `mine`
    for (const void* p : shown) all.push_back(static_cast<Choice*>(const_cast<void*>(p)));
    std::ranges::stable_sort(all, {}, [](const Choice* c) { return std::pair(c->color, c->key); });
    for (auto first = all.begin(); first != all.end();) {
      const auto end = std::find_if(first, all.end(), [&](const Choice* c) { return c->color != (*first)->color; });
      const int size = static_cast<int>(end - first);
      const auto group = (*first)->color < 0 ? nullptr : std::make_shared<Group>(group_->world, size);
      for (int r = 0; first != end; ++first, ++r) (*first)->rank = r, (*first)->size = size, (*first)->group = group;
    }
  });
  return mine.group ? std::make_unique<ThreadCommunicator>(mine.group, mine.rank, mine.size) : nullptr;
}

std::shared_ptr<void> ThreadCommunicator::do_on_failure(std::function<void()> wake) {
  return std::make_shared<OnFailure>(group_->world, std::move(wake));
}

std::unique_ptr<Communicator> self_communicator() {
  auto group = std::make_shared<ThreadCommunicator::Group>(std::make_shared<ThreadWorld>(), 1);
  return std::make_unique<ThreadCommunicator>(std::move(group), 0, 1);
}

namespace {

// The failure that caused the others: the first that is not their echo.
class FirstFailure {
 public:
  void add(std::exception_ptr error, bool echo) {
    std::lock_guard lock(mutex_);
    if (!error_ || (echo_ && !echo)) {
      error_ = error;
      echo_ = echo;
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  bool echo_ = false;
};

// The ranks of a job in this process: each has its own communicator, and the first failure ends the waiting of all.
class RanksHere {
 public:
  explicit RanksHere(int ranks)
      : ranks_(ranks),
        world_(std::make_shared<ThreadWorld>()),
        group_(std::make_shared<ThreadCommunicator::Group>(world_, ranks)) {
    require(ranks >= 1, "a run needs at least one rank");
  }

  void run(int r, const std::function<void(Communicator&)>& rank) const {
    ThreadCommunicator communicator(group_, r, ranks_);
    rank(communicator);
  }
  void run_guarded(int r, const std::function<void(Communicator&)>& rank) {
    try {
      run(r, rank);
    } catch (const RankFailed& error) {
      failure_.add(std::current_exception(), true);
      world_->fail(error.what());
    } catch (const std::exception& error) {
      failure_.add(std::current_exception(), false);
      world_->fail("rank " + std::to_string(r) + ": " + error.what());
    } catch (...) {
      failure_.add(std::current_exception(), false);
      world_->fail("rank " + std::to_string(r) + " threw something unknown");
    }
  }
  void fail(const std::string& text) {
    failure_.add(std::make_exception_ptr(Error(text)), false);
    world_->fail(text);
  }
  void rethrow() const { failure_.rethrow(); }

 private:
  int ranks_;
  std::shared_ptr<ThreadWorld> world_;
  std::shared_ptr<ThreadCommunicator::Group> group_;
  FirstFailure failure_;
};

}  // namespace

void run_ranks(int ranks, const std::function<void(Communicator&)>& rank) {
  RanksHere here(ranks);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        select_device(r);
        LastWords::wanted() ? here.run(r, rank) : here.run_guarded(r, rank);
      });
  }
  here.rethrow();
}

void run_fibers(int ranks, const std::function<void(Communicator&)>& rank) {
  RanksHere here(ranks);
  Fibers fibers(ranks, [&](int r) { here.run_guarded(r, rank); });
  fibers.run([&] { here.fail("every rank waits for another one"); });
  here.rethrow();
}

}  // namespace forge
