#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/to_size.hpp"
#include "core/types.hpp"

namespace forge {

// The operations of a communicator (comm/communicator.hpp), for counting their bytes.
enum class Collective { all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send };
inline constexpr int collective_count = 6;

constexpr std::string_view name_of(Collective collective) {
  constexpr std::string_view names[collective_count] = {"all-reduce", "all-gather", "reduce-scatter",
                                                        "broadcast",  "all-to-all", "send"};
  return names[static_cast<int>(collective)];
}

// Elements that a rank of `size` sends, by the least that the operation needs (Chan et al., "Collective communication:
// theory, practice, and experience", 2007). `count` is the call's argument: the whole buffer of an all-reduce or a
// broadcast (its root sends), a rank's part of the others, a pair's part of an all-to-all.
constexpr std::int64_t sent_elements(Collective collective, std::int64_t count, std::int64_t size) {
  switch (collective) {
    case Collective::all_reduce:
      return 2 * count * (size - 1) / size;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return count * (size - 1);
    case Collective::broadcast:
      return size > 1 ? count : 0;
    case Collective::send:
      return count;
  }
  return 0;
}

// The groups of ranks that talk to each other (comm/mesh.hpp).
enum class Group {
  scalars,
  tp,
  tp_behind,
  cp,
  pp,
  gradients,
  gradient_shards,
  gradient_replicas,
  gradient_tp,
  gradient_copies,
  gradient_tied,
  parameter_shards,
  ep,
  etp,
  expert_gradients,
  expert_gradient_shards,
  expert_gradient_replicas,
  expert_parameter_shards,
  matrices,
  expert_matrices,
  ep_rail,  // of ep, in two hops: the ranks of the same place on each node
  ep_node,  // … and the ranks of this node
  expert_gradient_etp,
  cp_inner,       // of cp, where attention has two levels: the ranks that exchange heads
  cp_outer,       // … and those among which keys go round
  gradient_node,  // of gradient_shards, where its sums have two levels: the ranks of this node
  gradient_rail,  // … and those of the same place on each node
  expert_gradient_node,
  expert_gradient_rail
};
inline constexpr int group_count = 29;

constexpr std::string_view name_of(Group group) {
  constexpr std::string_view names[group_count] = {"scalars",
                                                   "tp",
                                                   "tp_behind",
                                                   "cp",
                                                   "pp",
                                                   "gradients",
                                                   "gradient_shards",
                                                   "gradient_replicas",
                                                   "gradient_tp",
                                                   "gradient_copies",
                                                   "gradient_tied",
                                                   "parameter_shards",
                                                   "ep",
                                                   "etp",
                                                   "expert_gradients",
                                                   "expert_gradient_shards",
                                                   "expert_gradient_replicas",
                                                   "expert_parameter_shards",
                                                   "matrices",
                                                   "expert_matrices",
                                                   "ep_rail",
                                                   "ep_node",
                                                   "expert_gradient_etp",
                                                   "cp_inner",
                                                   "cp_outer",
                                                   "gradient_node",
                                                   "gradient_rail",
                                                   "expert_gradient_node",
                                                   "expert_gradient_rail"};
  return names[static_cast<int>(group)];
}

// Calls of one collective: `count` elements as the call takes them.
struct Sent {
  Group group;
  Collective collective;
  std::int64_t count;
  DType type;
  std::int64_t times = 1;
};

// Calls, and bytes sent by this rank, per operation.
struct Traffic {
  std::array<std::int64_t, collective_count> calls{}, bytes{};

  std::int64_t total_bytes() const {
    std::int64_t sum = 0;
    for (const std::int64_t b : bytes) sum += b;
    return sum;
  }
  std::int64_t total_calls() const {
    std::int64_t sum = 0;
    for (const std::int64_t c : calls) sum += c;
    return sum;
  }
  void add(Collective collective, std::int64_t sent_bytes, std::int64_t times = 1) {
    calls[to_size(collective)] += times;
    bytes[to_size(collective)] += times * sent_bytes;
  }
};

}  // namespace forge
