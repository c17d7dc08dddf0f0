#pragma once

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/world.hpp"
#include "device/device_memory.hpp"

namespace forge {

// The stand-in for the other ranks while one rank of a job runs alone.
enum class WireKind {
  none,  // nothing
  copy,  // a copy of the bytes that the rank would send, within its memory
  time,  // the same by a kernel of so many blocks that holds its stream for the seconds of a plan
};

// Takes the bytes of all replayed communicators of a rank.
class ReplayWire {
 public:
  // Seconds of a call, whose count is as the call takes it; of exchanges the mean part of a pair.
  using Price = std::function<double(const Sent& call)>;
  explicit ReplayWire(WireKind kind, Price price = {}, int blocks = 16);

  // Memory that was filled once: receives into it are left out.
  void keep(std::span<const std::byte> memory) { kept_.push_back(memory); }
  bool keeps(const std::byte* data) const;
  // A call of which the rank sends so many bytes.
  void carry(Stream& stream, const Sent& call, std::int64_t bytes);

 private:
  // Where bytes come from and go to in a stream: two halves.
  Buffer& scratch_of(Stream& stream);

  WireKind kind_;
  Price price_;
  int blocks_;
  std::vector<std::span<const std::byte>> kept_;
  std::map<const Stream*, Buffer> scratch_;
};

// One rank of a group, without the others. Its own numbers stand for theirs: gathers bring its part from every rank, an
// all-to-all its part to itself, a receive its own send in the same group; sums have its part alone, once. Host
// operations give its own values.
class ReplayCommunicator final : public Communicator {
 public:
  ReplayCommunicator(int rank, int size, std::shared_ptr<ReplayWire> wire)
      : Communicator(rank, size), wire_(std::move(wire)) {}

 protected:
  bool has_peers() const override { return false; }
  void do_all_reduce(Stream& stream, std::byte* data, std::int64_t count, DType type) override;
  void do_all_reduce_max(Stream& stream, std::byte* data, std::int64_t count, DType type) override;
  void do_all_gather(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count, DType type) override;
  void do_reduce_scatter(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count, DType type) override;
  void do_reduce_scatter_blocks(Stream& stream, std::byte*, std::int64_t blocks, std::int64_t count,
                                DType type) override {
    carry(stream, Collective::reduce_scatter, blocks * count, type);
  }
  void do_broadcast(Stream& stream, std::byte* data, std::int64_t count, DType type, int root) override;
  void do_exchange(Stream& stream, std::span<const Transfer> transfers) override;
  void do_all_to_all(Stream& stream, std::span<const Transfer> transfers, std::span<const Exchange> exchanges) override;
  void do_gather_host(const std::byte* in, std::byte* out, std::size_t bytes) override;
  void do_broadcast_host(std::byte* data, std::size_t bytes, int root) override;
  void do_collect_host(const std::string& text, int root, const std::function<void(const std::string&)>& take) override;
  void do_collect_host(std::int64_t, std::int64_t*, int) override {}
  // The same ranks again: there is one colour alone.
  std::unique_ptr<Communicator> do_split(int color, int key) override;
  std::unique_ptr<Communicator> do_part(const std::function<int(int rank)>& number_of) override;
  std::unique_ptr<Communicator> do_device() override { return do_split(0, rank()); }
  std::unique_ptr<Communicator> do_sub(const Grid& grid, AxisBits axes) override;

 private:
  void carry(Stream& stream, Collective collective, std::int64_t count, DType type);
  void carry_exchange(Stream& stream, Collective collective, std::span<const Transfer> transfers);
  void receive_from(Stream& stream, std::span<const Transfer> transfers, const std::byte* from, std::size_t period);
  void receive_what_is_sent(Stream& stream, std::span<const Transfer> transfers);

  std::shared_ptr<ReplayWire> wire_;
};

// The place of such a rank: rank `rank` of `size`, on nodes of so many ranks. Its device, threads and watchdog belong
// to `here`, the one rank that runs.
class ReplayWorld final : public World {
 public:
  ReplayWorld(const World& here, int rank, int size, int ranks_per_node, std::shared_ptr<ReplayWire> wire)
      : here_(here), rank_(rank), size_(size), ranks_per_node_(ranks_per_node), wire_(std::move(wire)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  int nodes() const override { return (size_ + ranks_per_node_ - 1) / ranks_per_node_; }
  int node(int rank) const override { return rank / ranks_per_node_; }
  std::string node_name(int) const override { return ""; }
  std::vector<std::string> first_nodes(std::size_t) const override { return {}; }
  std::unique_ptr<Communicator> make_world() const override {
    return std::make_unique<ReplayCommunicator>(rank_, size_, wire_);
  }
  Watchdog& watchdog() const override { return here_.watchdog(); }
  [[noreturn]] void abort(int code) const override { std::_Exit(code); }

 private:
  const World& here_;
  int rank_, size_, ranks_per_node_;
  std::shared_ptr<ReplayWire> wire_;
};

}  // namespace forge
