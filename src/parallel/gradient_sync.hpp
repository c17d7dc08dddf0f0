#pragma once

#include <memory>
#include <vector>

#include "comm/mesh.hpp"
#include "device/arena.hpp"
#include "device/stream.hpp"
#include "parallel/storage.hpp"

namespace forge {

// Sums gradients over the ranks that share a parameter, in a stream of its own behind the backward pass. By the
// linearity of sums, one order serves all: over the shard group (after each microbatch, or once a step), then, once a
// step and on the rank's shard only, over dp_replicate (HSDP) and over tp for what tp replicates or copies; at the end
// over the two stages that hold a tied table.
template <class T>
class GradientSync {
 public:
  using S = acc_t<T>;
  // uses[u]: how often a step adds to unit u's gradients (its done() calls).
  GradientSync(Arena& arena, Stream& compute, const ParameterStorage<T>& storage, Mesh& mesh, std::vector<int> uses);

  void start_step(Stream& compute);
  // Where the gradients of unit u's matrices are added: a buffer as long as the unit. Until done(u).
  S* matrices(Stream& compute, std::size_t u);
  // The same for its vectors, which are summed there over the step; offsets count from the unit's begin.
  S* vectors(std::size_t u) const;
  // All of a microbatch's contribution to unit u is in the compute stream. Every rank of a group calls it for the same
  // units in the same order.
  void done(Stream& compute, std::size_t u);
  // After all of the step: work given to `compute` from here on sees the reduced gradients.
  void finish(Stream& compute);

 private:
  struct PoolBuffer {
    View<S, 1> data;
    Event free;
    bool used = false;
  };

  bool only_vectors(std::size_t u) const { return storage_.local(u).vectors_begin == 0; }
  void reduce_shards(Stream& compute, std::size_t u, View<S, 1> sums);
  void reduce_step(std::size_t u);
  void reduce_parts(Communicator& group, std::size_t u, const Range& part);
  void follow(Stream& compute);

  const ParameterStorage<T>& storage_;
  Mesh& mesh_;
  std::vector<int> uses_, left_;
  bool alone_;  // nothing is ever sent
  std::unique_ptr<Stream> stream_;
  Event ready_, done_;  // made once
  struct Pool {
    std::vector<PoolBuffer> buffers;
    std::size_t next = 0;
  };
  Pool& pool_at(std::size_t u) { return pools_[static_cast<std::size_t>(pool_of(storage_.local(u)))]; }
  PoolBuffer& held(std::size_t u) { return pool_at(u).buffers[static_cast<std::size_t>(held_[u])]; }

  std::array<Pool, pool_classes> pools_;
  std::vector<int> held_;  // by unit: its pool buffer, −1
};

}  // namespace forge
