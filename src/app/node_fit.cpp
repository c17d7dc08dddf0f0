#include <algorithm>
#include <cstdint>

#include "app/device_fit.hpp"
#include "core/bytes.hpp"
#include "core/shortage.hpp"
#include "core/to_size.hpp"
#include "device/memory_left.hpp"

namespace forge {

namespace {

// What the ranks of a node need together, and what there is.
struct NodeNeed {
  std::int64_t bytes = 0, left = 0, ranks = 0, of_node = 1;
};

// Of this rank's node, or of this process where `ulimit -v` leaves less.
NodeNeed need_of(const RunSetup& setup, RunKind kind, const World& world) {
  const bool processes = !world.node_name(0).empty();
  const auto own = static_cast<std::int64_t>(planned_memory(setup, kind).total());
  constexpr std::int64_t unknown = std::int64_t{1} << 60;
  const auto left = node_memory_left(), addresses = addresses_left();
  NodeNeed node{own, left ? static_cast<std::int64_t>(left->bytes) : unknown, world.local_size(), 1};
  if (world.size() > 1) {
    const auto ranks = world.make_world()->split(world.node(world.rank()), world.rank());
    ranks->sum_host({&node.bytes, 1});
    ranks->min_host({&node.left, 1});
  }
  if (!addresses) return node;
  NodeNeed process{processes ? own : node.bytes, static_cast<std::int64_t>(addresses->bytes),
                   processes ? 1 : node.ranks, 0};
  return process.bytes - process.left > node.bytes - node.left ? process : node;
}

}  // namespace

void refuse_what_nodes_lack(const RunSetup& setup, RunKind kind, const World& world) {
  const NodeNeed own = need_of(setup, kind, world);
  std::int64_t shortage = own.bytes - own.left;
  std::int64_t figures[] = {own.bytes, own.left, own.ranks, own.of_node};
  if (world.size() > 1) {  // the figures of the node that lacks the most, on all
    const auto ranks = world.make_world();
    const std::int64_t mine = shortage;
    ranks->max_host({&shortage, 1});
    if (mine != shortage) std::fill(std::begin(figures), std::end(figures), 0);
    ranks->max_host(figures);
  }
  if (shortage <= 0) return;
  const auto bytes = to_size(figures[0]), left = to_size(figures[1]), ranks = to_size(figures[2]);
  const std::string limit = figures[3] == 0 ? "ulimit -v leaves a process"
                            : own.left == figures[1] && node_memory_left()
                                ? "are available on the node (" + node_memory_left()->limit + ")"
                                : "are available on the node";
  throw BadInput("the deck doesn't fit: " + format_bytes(bytes) + " planned for " +
                 (ranks == 1 ? "a rank" : std::to_string(ranks) + " ranks of a node") + ", of " + format_bytes(left) +
                 " that " + limit + "; " + nearest_change(setup, kind, left / ranks, FitOn::node));
}

void refuse_more_than_is_left(std::size_t bytes, const std::string& what) {
  for (const auto& left : {node_memory_left(), addresses_left()})
    if (left && left->bytes < bytes)
      throw Shortage(what + ": needs " + format_bytes(bytes) + ", and " + left->limit + " leaves " +
                     format_bytes(left->bytes) + "; legal: a higher limit, less of it, or more memory");
}

}  // namespace forge
