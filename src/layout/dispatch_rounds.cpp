#include "layout/dispatch_rounds.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace forge {

DispatchPlan::DispatchPlan(const ExpertRanks& ranks, std::span<const std::int64_t> counts, std::int64_t round_rows)
    : ranks_(ranks),
      round_rows_(round_rows),
      own_(to_size(ranks.experts)),
      arriving_(to_size(ranks.experts_here() * ranks.sources())) {
  require(static_cast<std::int64_t>(counts.size()) == ranks.sources() * ranks.experts && round_rows > 0,
          "a dispatch needs the counts of all sources, and rows");
  const int own_arrival = arrival(ranks.ep_rank, ranks.etp_rank);
  std::int64_t places = 0, most = 0;
  for (int group = 0; group < ranks.ep; ++group) {
    first_.push_back(places);
    std::int64_t begin = 0;
    for (std::int64_t e = 0; e < ranks.experts_here(); ++e) {
      const std::int64_t expert = group * ranks.experts_here() + e;
      for (int source = 0; source < ranks.sources(); ++source) {  // in the order of arrival
        const int from = source % ranks.ep * ranks.etp + source / ranks.ep;
        const Block block{begin, counts[to_size(from * ranks.experts + expert)]};
        if (source == own_arrival) {
          own_[to_size(expert)] = block;
          places += block.count;
        }
        if (group == ranks.ep_rank) arriving_[to_size(e * ranks.sources() + source)] = block;
        begin += block.count;
      }
    }
    most = std::max(most, begin);
  }
  rounds_ = static_cast<int>(std::max<std::int64_t>((most + round_rows - 1) / round_rows, 1));
}

std::int64_t DispatchPlan::in_round(const Block& block, int round) const {
  const Range window{round * round_rows_, (round + 1) * round_rows_};
  return std::max<std::int64_t>(intersection({block.begin, block.begin + block.count}, window).size(), 0);
}

Range DispatchPlan::sent(int round, int peer) const {
  const std::int64_t from = round * round_rows_;
  Range places{first_[to_size(peer)], 0};
  std::int64_t count = 0;
  for (std::int64_t e = 0; e < ranks_.experts_here(); ++e) {
    const Block& block = own_[to_size(peer * ranks_.experts_here() + e)];
    places.begin += std::clamp<std::int64_t>(from - block.begin, 0, block.count);
    count += in_round(block, round);
  }
  places.end = places.begin + count;
  return places;
}

std::vector<Range> DispatchPlan::stretches(int round) const {
  std::vector<Range> list;
  for (int peer = 0; peer < ranks_.ep; ++peer) {
    const Range places = sent(round, peer);
    if (places.empty()) continue;
    if (!list.empty() && list.back().end == places.begin)
      list.back().end = places.end;
    else
      list.push_back(places);
  }
  return list;
}

std::int64_t DispatchPlan::received(int round, int ep_peer, int etp_peer) const {
  std::int64_t sum = 0;
  for (std::int64_t e = 0; e < ranks_.experts_here(); ++e)
    sum += in_round(arriving(e, arrival(ep_peer, etp_peer)), round);
  return sum;
}

std::int64_t DispatchPlan::received_of(int round, int etp_peer) const {
  std::int64_t sum = 0;
  for (int peer = 0; peer < ranks_.ep; ++peer) sum += received(round, peer, etp_peer);
  return sum;
}

std::int64_t DispatchPlan::rows(int round) const {
  std::int64_t sum = 0;
  for (const Block& block : arriving_) sum += in_round(block, round);
  return sum;
}

std::vector<std::int64_t> DispatchPlan::blocks(int round) const {
  std::vector<std::int64_t> list;
  list.reserve(arriving_.size());
  for (int source = 0; source < ranks_.sources(); ++source)
    for (std::int64_t e = 0; e < ranks_.experts_here(); ++e) list.push_back(in_round(arriving(e, source), round));
  return list;
}

std::vector<std::int64_t> DispatchPlan::offsets(int round) const {
  std::vector<std::int64_t> list{0};
  for (std::int64_t e = 0; e < ranks_.experts_here(); ++e) {
    std::int64_t sum = list.back();
    for (int source = 0; source < ranks_.sources(); ++source) sum += in_round(arriving(e, source), round);
    list.push_back(sum);
  }
  return list;
}

}  // namespace forge
