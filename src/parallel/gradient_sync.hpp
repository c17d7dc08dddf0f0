#pragma once

#include <vector>

#include "comm/mesh.hpp"
#include "core/to_size.hpp"
#include "device/arena.hpp"
#include "device/side_stream.hpp"
#include "layout/reductions.hpp"
#include "nn/fresh_sums.hpp"
#include "parallel/storage.hpp"

namespace forge {

// Sums gradients over the ranks that share a parameter, in a stream of its own behind the backward pass. By the
// linearity of sums, one order serves all: over the shard group (after each microbatch, or once a step), then, once a
// step and on the rank's shard only, over dp_replicate (HSDP) and over tp for elements that tp replicates or copies; at
// the end over the two stages that hold a tied table. Ranks always sum in the accumulation type;
// two-level sums are exchanged between nodes in the compute type (parallel/level_sums.hpp). Where the sums over
// microbatches are kept in the compute type (optimizer.gradients), each number is rounded once for each microbatch.
template <class T>
class GradientSync {
 public:
  using A = acc_t<T>;
  GradientSync(Arena& arena, Stream& compute, ParameterStorage<T>& storage, Mesh& mesh);

  // `seed` and `step`: for the numbers that round.
  void start_step(Stream& compute, std::uint64_t seed, std::int64_t step);
  // Gives unit u an empty buffer of its pool.
  void clear(Stream& compute, std::size_t u, int buffer);
  // Sums the gradients in the compute stream: of a microbatch in the buffer, or (-1) of the step; `last`: no more
  // gradients of the unit come in this step. Every rank of a group calls it for the same units in the same order.
  void reduce(Stream& compute, std::size_t u, int buffer, bool last);
  // From here on adds a checksum of gradients before their reductions to total[0]; with no total it ends. partial:
  // sum_partials words of workspace.
  void take_checksum(View<std::uint64_t, 1> total, View<std::uint64_t, 1> partial) { checksum_ = {total, partial, 0}; }
  // After the table's reduction: sums it over the two stages that hold it.
  void reduce_tied(std::size_t table);
  // The sums that no layer has added to yet.
  FreshSums<A>& fresh() { return fresh_; }
  // After all of the step: work given to `compute` from here on sees the reduced gradients.
  void finish(Stream& compute);

 private:
  struct PoolBuffer {
    View<A, 1> data;
    Event free;
    bool used = false;
  };

  struct Checksum {
    View<std::uint64_t, 1> total, partial;
    std::uint64_t pieces = 0;  // added so far
  };
  void add_to_checksum(Stream& compute, View<const A, 1> sums);
  PoolBuffer& buffer_of(const RankUnit<T>& unit, int buffer) {
    return pools_[to_size(pool_of(unit.local))][to_size(buffer)];
  }
  // The owner of the numbers that round: a rank, for sums that no other rank has, or all ranks that share the sums.
  enum class Draws { own, shared };
  // A unit's sums(elements) are empty but for its vectors' sums, which are zero.
  void begin_sums(Stream& compute, const RankUnit<T>& unit, A* sums);
  void reduce_shards(Stream& compute, const RankUnit<T>& unit, View<A, 1> sums);
  void reduce_rounded(Stream& compute, std::size_t u, View<A, 1> sums, bool last);
  // f(rounding, part) for each tensor's part of `range` of the unit's buffer, in the addition of a number.
  template <class F>
  void for_tensors(const RankUnit<T>& unit, const Range& range, Draws draws, std::int64_t number, F f) const;
  void reduce_step(const RankUnit<T>& unit);
  // `sums`: the input of a reduce-scatter, and overwritten; else `part`, the sum's place, has it.
  void run(Stream& stream, const Reduction& reduction, View<A, 1> sums, View<A, 1> part);

  ParameterStorage<T>& storage_;
  FreshSums<A> fresh_;
  Mesh& mesh_;
  SideStream stream_;              // none: one rank, nothing is ever sent
  Event done_;                     // made once
  std::array<T*, 2> exchanged_{};  // sums of nodes, sent and received, of the largest unit
  std::array<std::vector<PoolBuffer>, pool_classes> pools_;
  std::uint64_t seed_ = 0;
  std::int64_t step_ = 0;
  std::vector<std::int64_t> additions_;  // in this step, by unit
  Checksum checksum_;
};

}  // namespace forge
