#include "layout/node_dispatch.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace forge {

namespace {

// The ranks of a node as the group of a DispatchPlan, with the node's experts.
ExpertRanks ranks_of_node(const ExpertRanks& ranks, int nodes) {
  require(ranks.etp == 1 && nodes > 1 && ranks.ep % nodes == 0, "a dispatch in two hops needs nodes of as many ranks");
  const int here = ranks.ep / nodes;
  return {here, ranks.ep_rank % here, 1, 0, ranks.experts / nodes};
}

}  // namespace

std::vector<std::int64_t> NodeDispatchPlan::node_counts(const ExpertRanks& ranks, int nodes,
                                                        std::span<const std::int64_t> counts) {
  const std::int64_t columns = ranks.experts + nodes, experts = ranks.experts / nodes;
  const int here = ranks.ep / nodes;
  require(static_cast<std::int64_t>(counts.size()) == ranks.ep * columns, "a dispatch needs the counts of all sources");
  std::vector<std::int64_t> sums(to_size(here * experts));
  for (int source = 0; source < ranks.ep; ++source)
    for (std::int64_t e = 0; e < experts; ++e)
      sums[to_size(source % here * experts + e)] +=
          counts[to_size(source * columns + ranks.ep_rank / here * experts + e)];
  return sums;
}

NodeDispatchPlan::NodeDispatchPlan(const ExpertRanks& ranks, int nodes, std::span<const std::int64_t> counts,
                                   std::int64_t round_rows)
    : of_node_(ranks_of_node(ranks, nodes), node_counts(ranks, nodes, counts), round_rows) {
  const std::int64_t columns = ranks.experts + nodes;
  const int here = ranks.ep / nodes, node = ranks.ep_rank / here;
  const auto add = [](std::vector<Range>& list, std::int64_t count) {
    const std::int64_t begin = list.empty() ? 0 : list.back().end;
    list.push_back({begin, begin + count});
  };
  for (int n = 0; n < nodes; ++n) {
    add(sent_, counts[to_size(ranks.ep_rank * columns + ranks.experts + n)]);
    add(staged_, counts[to_size((n * here + ranks.ep_rank % here) * columns + ranks.experts + node)]);
  }
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks.ep; ++rank) {
    std::int64_t rows = 0;
    for (int source = 0; source < ranks.ep; ++source)
      for (std::int64_t e = 0; e < ranks.experts_here(); ++e)
        rows += counts[to_size(source * columns + rank * ranks.experts_here() + e)];
    most = std::max(most, rows);
  }
  rounds_ = static_cast<int>(std::max<std::int64_t>((most + round_rows - 1) / round_rows, 1));
}

}  // namespace forge
