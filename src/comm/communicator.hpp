#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/host_reduction.hpp"
#include "comm/host_traffic.hpp"
#include "comm/tracks.hpp"
#include "core/collectives.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"
#include "device/timeline.hpp"
#include "layout/grid.hpp"

namespace forge {

inline std::size_t byte_count(std::int64_t count, DType type) {
  return to_size(count) * size_of(type);
}

// A group of ranks and their operations: over MPI, over NCCL, or between threads of one process. Every rank of the
// group calls the same operations in the same order, and gives those on device memory to one stream at a time. Device
// operations are ordered in their stream (a Worker runs them behind the computation); host operations return when they
// are done, and may be called while device operations are under way. A communicator must live longer than the work that
// it gave to streams. Counts are elements of the type. Sums of a fixed number of ranks are repeatable bit for bit, and
// the same on every rank; bf16 is added in fp32 and rounded after each addition or once.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Collective: the ranks that give the same color, ordered by key and then by rank. A negative color takes no part and
  // gets null.
  std::unique_ptr<Communicator> split(int color, int key);
  // Collective: the same ranks again, independent of this one.
  std::unique_ptr<Communicator> duplicate() { return split(0, rank_); }
  // Collective: the ranks that have this one's number, in their order. Every rank can compute the number of any rank. A
  // negative number takes no part and gets null.
  std::unique_ptr<Communicator> part(const std::function<int(int rank)>& number_of) {
    return counted(do_part(number_of));
  }
  // Collective: the ranks of this one that share this rank's node, in their order; with threads all, or as many
  // consecutive ones as FORGE_RANKS_PER_NODE says.
  std::unique_ptr<Communicator> node() { return counted(do_node()); }
  // Collective: a communicator of the same ranks for device memory (device_communicator()).
  std::unique_ptr<Communicator> device() { return do_device(); }

  // Collective: the same ranks again, numbered as before, on a grid of their number, to make groups of. It may share
  // memory and connections with this communicator, which must live longer than its work.
  std::unique_ptr<Communicator> cartesian(const Grid& grid);
  // Limits the blocks of a GPU that a collective takes, in groups that sub() and split() make from here on; 0: as many
  // as the library likes. No effect on the CPU.
  virtual void limit_blocks(int) {}
  // Collective, of a communicator that cartesian() made: the ranks that differ from this one in these axes only, in
  // the grid's order. Each call makes a group of its own; where no axis has more than one rank, without any other rank.
  std::unique_ptr<Communicator> sub(AxisBits axes);

  // ---- device memory, in stream order
  // data ← Σ over ranks, in place. Types: fp64, fp32, bf16, int32, int64.
  void all_reduce(Stream& stream, void* data, std::int64_t count, DType type);
  // data ← the largest over ranks, in place; the same in any order. No NaN. Types: fp64, fp32.
  void all_reduce_max(Stream& stream, void* data, std::int64_t count, DType type);
  // out(size · count) ← every rank's in(count), in the order of ranks; in may be its own part of out.
  void all_gather(Stream& stream, const void* in, void* out, std::int64_t count, DType type);
  // out(count) ← this rank's part of Σ in(size · count); out may be that part of in. Types as for all_reduce.
  void reduce_scatter(Stream& stream, const void* in, void* out, std::int64_t count, DType type);
  // Likewise in place, of blocks that follow each other: data(blocks, size · count). It counts as one call.
  void reduce_scatter_blocks(Stream& stream, void* data, std::int64_t blocks, std::int64_t count, DType type);
  void broadcast(Stream& stream, void* data, std::int64_t count, DType type, int root);
  // Rank r gets in[r · count …) of every rank, in the order of ranks.
  void all_to_all(Stream& stream, const void* in, void* out, std::int64_t count, DType type);
  // Rank r gets send_counts[r] elements of `in`, where the ranks' parts follow each other, and so in `out`.
  // The counts are host values: receive_counts[r] here is send_counts[rank()] of rank r.
  void all_to_all(Stream& stream, const void* in, std::span<const std::int64_t> send_counts, void* out,
                  std::span<const std::int64_t> receive_counts, DType type);
  // A part of all_to_all at any place: send[r] goes to rank r, and may be the same memory for several of them.
  struct Part {
    void* data = nullptr;
    std::int64_t count = 0;
  };
  void all_to_all(Stream& stream, std::span<const Part> send, std::span<const Part> receive, DType type) {
    const Exchange one{send, receive, type};
    all_to_all(stream, {&one, 1});
  }
  // Several of these as one call, which counts once.
  struct Exchange {
    std::span<const Part> send, receive;
    DType type;
  };
  void all_to_all(Stream& stream, std::span<const Exchange> exchanges);
  // Sends a number to each rank and receives one from each, so that all connections exist; it counts as no traffic.
  void connect(Stream& stream);
  // Point to point. A send may wait for its receive, so that one to the rank itself needs a group. Between group_begin
  // and group_end, which takes the stream of them all, they proceed together, whatever their order. Messages between
  // two ranks match in the order given.
  void group_begin();
  void group_end(Stream& stream);
  void send(Stream& stream, const void* data, std::int64_t count, DType type, int to);
  void receive(Stream& stream, void* data, std::int64_t count, DType type, int from);

  // Operations with counts and types from dense views.
  template <class T, int N>
  void all_reduce(Stream& stream, View<T, N> data) {
    all_reduce(stream, data.data, elements(data), dtype_of<T>);
  }
  template <class T, int N>
  void all_reduce_max(Stream& stream, View<T, N> data) {
    all_reduce_max(stream, data.data, elements(data), dtype_of<T>);
  }
  template <class T, int N, int M>
  void all_gather(Stream& stream, View<const T, N> in, View<T, M> out) {
    require(elements(out) == size_ * elements(in), "an all-gather's output is not size times its input");
    all_gather(stream, in.data, out.data, elements(in), dtype_of<T>);
  }
  template <class T, int N, int M>
  void reduce_scatter(Stream& stream, View<const T, N> in, View<T, M> out) {
    require(elements(in) == size_ * elements(out), "a reduce-scatter's input is not size times its output");
    reduce_scatter(stream, in.data, out.data, elements(out), dtype_of<T>);
  }
  template <class T, int N>
  void broadcast(Stream& stream, View<T, N> data, int root) {
    broadcast(stream, data.data, elements(data), dtype_of<T>, root);
  }
  template <class T, int N>
  void send(Stream& stream, View<T, N> data, int to) {
    send(stream, data.data, elements(data), dtype_of<std::remove_const_t<T>>, to);
  }
  template <class T, int N>
  void receive(Stream& stream, View<T, N> data, int from) {
    receive(stream, data.data, elements(data), dtype_of<T>, from);
  }

  // ---- host values; each call returns when every rank has called it and the result is there
  // Doubles are added in the order of ranks; the largest and the smallest are NaN where any rank has NaN.
  void sum_host(std::span<double> values) { reduce_host(values, HostReduction::sum); }
  void sum_host(std::span<std::int64_t> values) { reduce_host(values, HostReduction::sum); }
  void max_host(std::span<double> values) { reduce_host(values, HostReduction::largest); }
  void max_host(std::span<std::int64_t> values) { reduce_host(values, HostReduction::largest); }
  void min_host(std::span<double> values) { reduce_host(values, HostReduction::smallest); }
  void min_host(std::span<std::int64_t> values) { reduce_host(values, HostReduction::smallest); }
  // root's text on every rank.
  void broadcast_host(std::string& text, int root);
  // The text of the first rank that has one, on every rank: no rank holds more than that. rank −1: none has one.
  struct RankText {
    int rank = -1;
    std::string text;
  };
  RankText first_text(const std::string& text);
  // Every rank's text, in the order of ranks, on every rank: for groups that don't grow with the job.
  std::vector<std::string> gather_host(const std::string& text);
  // Every rank's text at `root`, which takes them one by one, in the order of ranks: long ones, too. An exception of
  // `take` is thrown when all texts have come.
  void collect_host(const std::string& text, int root, const std::function<void(const std::string&)>& take);
  // Every rank's number at `root`, in the order of ranks; nothing on the others.
  std::vector<std::int64_t> collect_host(std::int64_t number, int root);
  void barrier();

  // Host values sent by this communicator and all that were split off from it.
  const HostTraffic& host_traffic() const { return *host_traffic_; }
  // Device bytes that this rank has sent, by the least that each operation needs (core/collectives.hpp).
  const Traffic& traffic() const { return traffic_; }
  std::int64_t bytes_sent() const { return traffic_.total_bytes(); }
  // Notes the mesh's group that this is.
  void set_group(Group group) { serves_ = group; }
  // Collectives of several ranks are measured in the timeline while it runs, under the group's name; null: no more.
  void measure_in(Timeline* timeline) { timeline_ = timeline; }
  // Device operations take part in the turns of these tracks; null: no more.
  void take_turns(Tracks* tracks) { tracks_ = tracks; }
  // The stream's later work starts after the event, which the group's ranks record in another
  // stream.
  void wait(Stream& stream, const Event& done) const {
    if (tracks_ && size_ > 1 && tracks_->takes(stream)) tracks_->turn();
    const auto time = size_ > 1 && timeline_ ? timeline_->measure_wait(stream, name_of(serves_)) : std::nullopt;
    done.wait(stream);
  }

 protected:
  struct Transfer {
    std::byte* data;
    std::int64_t count;
    DType type;
    int peer;
    bool sends;
  };

  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  Group group() const { return serves_; }
  // Whether host operations have other ranks to ask; else this rank's values are the result.
  virtual bool has_peers() const { return size_ > 1; }

  // The implementation's operations; size() > 1 and counts > 0, but for splitting.
  virtual void do_all_reduce(Stream& stream, std::byte* data, std::int64_t count, DType type) = 0;
  virtual void do_all_reduce_max(Stream& stream, std::byte* data, std::int64_t count, DType type) = 0;
  virtual void do_all_gather(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count, DType type) = 0;
  virtual void do_reduce_scatter(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count,
                                 DType type) = 0;
  // One do_reduce_scatter after the other, unless an implementation has its own.
  virtual void do_reduce_scatter_blocks(Stream& stream, std::byte* data, std::int64_t blocks, std::int64_t count,
                                        DType type);
  virtual void do_broadcast(Stream& stream, std::byte* data, std::int64_t count, DType type, int root) = 0;
  // All of the transfers proceed together; transfers of zero elements are left out. The list is the caller's.
  virtual void do_exchange(Stream& stream, std::span<const Transfer> transfers) = 0;
  // The transfers of all-to-alls, whose parts of the rank to itself have been copied.
  virtual void do_all_to_all(Stream& stream, std::span<const Transfer> transfers, std::span<const Exchange> exchanges);
  // out(size · bytes) ← every rank's in(bytes).
  virtual void do_gather_host(const std::byte* in, std::byte* out, std::size_t bytes) = 0;
  virtual void do_broadcast_host(std::byte* data, std::size_t bytes, int root) = 0;
  virtual void do_collect_host(const std::string& text, int root,
                               const std::function<void(const std::string&)>& take) = 0;
  // all(size) ← every rank's number, at the root.
  virtual void do_collect_host(std::int64_t number, std::int64_t* all, int root) = 0;
  // values ← over the ranks. Unless an implementation has its own: each rank gathers the values of all.
  virtual void do_reduce_host(std::span<double> values, HostReduction reduction);
  virtual void do_reduce_host(std::span<std::int64_t> values, HostReduction reduction);
  virtual std::unique_ptr<Communicator> do_split(int color, int key) = 0;
  virtual std::unique_ptr<Communicator> do_node();
  virtual std::unique_ptr<Communicator> do_part(const std::function<int(int rank)>& number_of);
  virtual std::unique_ptr<Communicator> do_device();
  // A grid by splitting, unless an implementation has grids of its own.
  virtual std::unique_ptr<Communicator> do_cartesian(const Grid& grid);
  virtual std::unique_ptr<Communicator> do_sub(const Grid& grid, AxisBits axes);

  // Calls `wake`, from any thread, when another rank fails that this one may wait for, for as long as the result lives.
  // Ranks that are processes end together instead: null.
  virtual std::shared_ptr<void> do_on_failure(std::function<void()>) { return nullptr; }

  // For an implementation that leaves host operations to another communicator of the same ranks.
  static std::shared_ptr<void> on_failure_of(Communicator& other, std::function<void()> wake) {
    return other.do_on_failure(std::move(wake));
  }
  static void gather_host_by(Communicator& other, const std::byte* in, std::byte* out, std::size_t bytes) {
    other.do_gather_host(in, out, bytes);
  }
  static void broadcast_host_by(Communicator& other, std::byte* data, std::size_t bytes, int root) {
    other.do_broadcast_host(data, bytes, root);
  }
  static void collect_host_by(Communicator& other, const std::string& text, int root,
                              const std::function<void(const std::string&)>& take) {
    other.do_collect_host(text, root, take);
  }
  static void collect_host_by(Communicator& other, std::int64_t number, std::int64_t* all, int root) {
    other.do_collect_host(number, all, root);
  }
  template <class T>
  static void reduce_host_by(Communicator& other, std::span<T> values, HostReduction reduction) {
    other.do_reduce_host(values, reduction);
  }

 private:
  template <class T, int N>
  static std::int64_t elements(const View<T, N>& view) {
    require(view.dense() || view.rows() <= 1, "a communicator takes dense views only");
    return view.size();
  }
  template <class T>
  void reduce_host(std::span<T> values, HostReduction reduction);
  template <class T>
  void reduce_gathered(std::span<T> values, HostReduction reduction);
  // Makes the host values of a group that was split off count here.
  std::unique_ptr<Communicator> counted(std::unique_ptr<Communicator> part);
  // An operation of several ranks, measured; of a track in the stream of exchanges. `any`: there is anything to do.
  template <class Operation>
  void give(Stream& stream, Collective collective, Operation operation, bool any);
  void transfer(Stream& stream, Transfer t);
  void exchange(Stream& stream, std::span<const Transfer> transfers);
  std::optional<Timeline::Scope> measured(Stream& stream, Collective collective) const {
    if (!timeline_ || size_ == 1) return {};
    return timeline_->measure(stream, name_of(collective), name_of(serves_));
  }
  void count_sent(Collective collective, std::int64_t elements, DType type);
  void check_peer(int peer) const;

  int rank_, size_;
  std::optional<Grid> grid_;  // of cartesian()
  bool grouping_ = false;
  // Kept from call to call, so that a step allocates nothing: transfers of a group, of an all-to-all, and its parts.
  std::vector<Transfer> group_, transfers_;
  std::vector<Part> sent_, received_;
  std::vector<std::byte> host_values_;
  Traffic traffic_;
  std::shared_ptr<HostTraffic> host_traffic_ = std::make_shared<HostTraffic>();
  Timeline* timeline_ = nullptr;
  Tracks* tracks_ = nullptr;
  Group serves_ = Group::scalars;
};

}  // namespace forge
