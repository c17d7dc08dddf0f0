#pragma once

#include <vector>

#include "comm/mesh.hpp"
#include "device/arena.hpp"
#include "device/side_stream.hpp"
#include "nn/tensors.hpp"
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
  GradientSync(Arena& arena, Stream& compute, const ParameterStorage<T>& storage, Mesh& mesh);

  void start_step(Stream& compute);
  // Where the gradients of unit u's matrices are added: a buffer as long as the unit. Units that take turns have one
  // between clear() and reduce().
  S* matrices(std::size_t u) const;
  // Where the gradients of its vectors are added, over the step.
  UnitPart<S> vectors(std::size_t u) const;
  // Gives unit u a place of its pool, with zeros.
  void clear(Stream& compute, std::size_t u, int place);
  // Sums what is in the compute stream: of a microbatch in the place, or (-1) of the step; `last`: nothing is added to
  // the unit in this step any more. Every rank of a group calls it for the same units in the same order.
  void reduce(Stream& compute, std::size_t u, int place, bool last);
  // After the table's reduction: sums it over the two stages that hold it.
  void reduce_tied(std::size_t table);
  // After all of the step: work given to `compute` from here on sees the reduced gradients.
  void finish(Stream& compute);

 private:
  struct Place {
    View<S, 1> data;
    Event free;
    bool used = false;
  };

  void reduce_shards(Stream& compute, std::size_t u, View<S, 1> sums);
  void reduce_step(std::size_t u);
  void reduce_parts(Communicator& group, std::size_t u, const Range& part);

  const ParameterStorage<T>& storage_;
  Mesh& mesh_;
  SideStream stream_;  // none: one rank, nothing is ever sent
  Event done_;         // made once
  Place& place_of(std::size_t u, int place) {
    return pools_[static_cast<std::size_t>(pool_of(storage_.local(u)))][static_cast<std::size_t>(place)];
  }

  std::array<std::vector<Place>, pool_classes> pools_;
  std::vector<S*> matrices_;  // by unit; null: it has no place now
};

}  // namespace forge
