#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/to_size.hpp"
#include "layout/boxes.hpp"

namespace forge {

// The ranks that share the experts of a layer: `ep` groups have E / ep experts each, and the `etp` ranks of a group
// have some columns of each of them. Sources of rows are numbered ep coordinate · etp + etp coordinate.
struct ExpertRanks {
  int ep = 1, ep_rank = 0;
  int etp = 1, etp_rank = 0;
  std::int64_t experts = 0;  // E

  int sources() const { return ep * etp; }
  std::int64_t experts_here() const { return experts / ep; }
};

// The assignments (row, choice) that each rank of a dispatch sends to each other, in rounds of at most so many rows a
// rank: a pure function of all sources' counts, so that every rank works it out alone. A source's assignments stand in
// the order of their experts: those of one round and receiver are neighbours. A receiving group takes them in the order
// (expert, source), cut every `round_rows`. In a round they arrive by source, in the order (etp coordinate, ep
// coordinate), and from one source by expert.
class DispatchPlan {
 public:
  // counts: (sources, E).
  DispatchPlan(const ExpertRanks& ranks, std::span<const std::int64_t> counts, std::int64_t round_rows);

  // The most rounds that any group needs, at least 1: the same on every rank.
  int rounds() const { return rounds_; }
  // The places of this rank's own order that go to ep coordinate `peer`.
  Range sent(int round, int peer) const;
  // These places for all peers, joined where they follow each other.
  std::vector<Range> stretches(int round) const;
  // Rows that this rank's group gets from a source.
  std::int64_t received(int round, int ep_peer, int etp_peer) const;
  // Rows from all sources of one etp coordinate, and from all sources.
  std::int64_t received_of(int round, int etp_peer) const;
  std::int64_t rows(int round) const;
  // Rows of each (source in the order of arrival, expert of this rank).
  std::vector<std::int64_t> blocks(int round) const;
  // (experts_here + 1): where each expert's rows of the round begin, in the order of experts.
  std::vector<std::int64_t> offsets(int round) const;

 private:
  struct Block {
    std::int64_t begin = 0, count = 0;  // in the receiving group's order of assignments
  };
  std::int64_t in_round(const Block& block, int round) const;
  const Block& arriving(std::int64_t expert, int source) const {
    return arriving_[to_size(expert * ranks_.sources() + source)];
  }
  int arrival(int ep_peer, int etp_peer) const { return etp_peer * ranks_.ep + ep_peer; }

  ExpertRanks ranks_;
  std::int64_t round_rows_;
  int rounds_ = 1;
  std::vector<Block> own_;           // of this rank's assignments, by expert of all
  std::vector<std::int64_t> first_;  // (ep) place of the first assignment that goes to each group
  std::vector<Block> arriving_;      // (experts_here, sources in the order of arrival)
};

}  // namespace forge
