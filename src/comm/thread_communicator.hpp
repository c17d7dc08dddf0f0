#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.hpp"

namespace forge {

// Another rank of this process failed, so that an operation cannot end.
class RankFailed : public Error {
 public:
  using Error::Error;
};

// Runs rank(world) in `ranks` threads of this process, each with its own communicator over all of them and the device
// of its number. When one throws, the operations of all others throw RankFailed instead of waiting for it, and the
// exception that came first is thrown here, after all threads have ended; but where last words are wanted
// (core/last_words.hpp) nothing is caught, as in processes. Operations on device memory: as device_communicator() says.
void run_ranks(int ranks, const std::function<void(Communicator& world)>& rank);

// Like run_ranks(), in this thread, for jobs of thousands of ranks that compute nothing: each has its own stack
// (comm/fibers.hpp), and one that would wait for another lets the others run. Ranks start no threads. Where all of them
// wait, the job ends with an Error that says so.
void run_fibers(int ranks, const std::function<void(Communicator& world)>& rank);

// A group of this rank alone, without MPI.
std::unique_ptr<Communicator> self_communicator();

// Between threads of one process: all read each other's memory in place. Sums run in the order of ranks, bf16 in fp32
// and rounded once. A send waits for its receive, as NCCL's does.
class ThreadCommunicator final : public Communicator {
 public:
  class Group;

  ThreadCommunicator(std::shared_ptr<Group> group, int rank, int size);
  ~ThreadCommunicator() override;

 protected:
  void do_all_reduce(Stream&, std::byte* data, std::int64_t count, DType) override;
  void do_all_reduce_max(Stream&, std::byte* data, std::int64_t count, DType) override;
  void do_all_gather(Stream&, const std::byte* in, std::byte* out, std::int64_t count, DType) override;
  void do_reduce_scatter(Stream&, const std::byte* in, std::byte* out, std::int64_t count, DType) override;
  void do_broadcast(Stream&, std::byte* data, std::int64_t count, DType, int root) override;
  void do_exchange(Stream&, std::span<const Transfer>) override;
  void do_gather_host(const std::byte* in, std::byte* out, std::size_t bytes) override;
  void do_collect_host(const std::string& text, int root, const std::function<void(const std::string&)>& take) override;
  void do_collect_host(std::int64_t number, std::int64_t* all, int root) override;
  void do_reduce_host(std::span<double> values, HostReduction reduction) override;
  void do_reduce_host(std::span<std::int64_t> values, HostReduction reduction) override;
  void do_broadcast_host(std::byte* data, std::size_t bytes, int root) override;
  std::unique_ptr<Communicator> do_split(int color, int key) override;
  std::shared_ptr<void> do_on_failure(std::function<void()> wake) override;

 private:
  template <class F>
  void enqueue(Stream& stream, F f);
  template <class T>
  void reduce_values(std::span<T> values, HostReduction reduction);
  template <class Combine>
  void reduce_all(Stream& stream, std::byte* data, std::int64_t count, DType type, Combine combine);

  std::shared_ptr<Group> group_;
};

}  // namespace forge
