#include "parallel/level_sums.hpp"

#include "kernels/rows/node_sums.hpp"

namespace forge {

template <class T>
void sum_in_levels(Communicator& node, Communicator& rail, Stream& stream, View<acc_t<T>, 1> sums,
                   View<acc_t<T>, 1> part, const std::array<T*, 2>& exchanged) {
  using A = acc_t<T>;
  const std::int64_t nodes = rail.size(), count = part.size();
  require(sums.size() == nodes * node.size() * count &&
              part.data == sums.data + (rail.rank() * node.size() + node.rank()) * count,
          "two-level sums: a part that isn't the rank's own");
  node.reduce_scatter_blocks(stream, sums.data, nodes, count, dtype_of<A>);
  const View<T, 2> sent(exchanged[0], {{nodes, count}}), received(exchanged[1], {{nodes, count}});
  const View<const A, 2> of_node(sums.data + node.rank() * count, {{nodes, count}}, node.size() * count);
  round_nodes<T>(stream, of_node, sent);
  rail.all_to_all(stream, sent.data, received.data, count, dtype_of<T>);
  add_nodes<T>(stream, received, rail.rank(), part);
}

FORGE_INSTANTIATE_FUNCTION(sum_in_levels);

}  // namespace forge
