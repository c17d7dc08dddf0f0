#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/dispatch_rounds.hpp"

namespace forge {

// The rows that each rank sends to each other in a dispatch of two hops: a pure function of all sources' counts, so
// that every rank works it out alone. Ranks of ep are numbered node · ranks of a node + place; etp is 1. A record is a
// row on its way to a node, once whatever the number of its experts there, and goes to the rank of the source's place.
// Then the node's ranks exchange assignments in the rounds of a DispatchPlan of their own, in which a source is a rank
// of the node with all its records.
class NodeDispatchPlan {
 public:
  // counts: (ep, E + nodes), of each source its assignments of each expert and its records for each node. Rounds are of
  // at most so many rows.
  NodeDispatchPlan(const ExpertRanks& ranks, int nodes, std::span<const std::int64_t> counts, std::int64_t round_rows);

  // The most that any rank of ep needs, the same on all of them: a rail's ranks stay together.
  int rounds() const { return rounds_; }
  // This rank's records, by node; and the records that it gets, by the source's node: the range of each node.
  const std::vector<Range>& records_sent() const { return sent_; }
  const std::vector<Range>& records_staged() const { return staged_; }
  const DispatchPlan& of_node() const { return of_node_; }
  // (ranks of a node, E / nodes): assignments that each rank of this node sends in it.
  static std::vector<std::int64_t> node_counts(const ExpertRanks& ranks, int nodes,
                                               std::span<const std::int64_t> counts);

 private:
  std::vector<Range> sent_, staged_;
  DispatchPlan of_node_;
  int rounds_ = 1;
};

}  // namespace forge
