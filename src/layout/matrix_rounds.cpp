#include "layout/matrix_rounds.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/to_size.hpp"

namespace forge {

namespace {

// Evenness of a round: the mean of its owners' work, of the busiest one's. Enough to end it early, and what may be lost
// for a longer round.
constexpr double even_enough = 0.97, even_loss = 0.02;
constexpr double early = 1.0 / 8;  // of all work

// A round that is filled: by rank the work, elements of its matrices, and elements that it holds. `before`: the work of
// all rounds before, by rank.
struct OpenRound {
  explicit OpenRound(const std::vector<double>& before)
      : work_before(before), work(before.size(), 0), owned(before.size(), 0), held(before.size(), 0) {
    for (int r = 0; r < static_cast<int>(before.size()); ++r) by_work.insert(place_of(r));
  }

  bool holds(const std::vector<PartOfRank>& more) const {
    return std::all_of(more.begin(), more.end(), [&](const PartOfRank& part) {
      const std::int64_t now = held[to_size(part.rank)];
      return now == 0 || now + part.elements <= most_held;
    });
  }
  // Of the ranks with room the one with the least work of the round, of those the one with the least of all rounds
  // before; −1: none has room.
  int owner_of(std::int64_t elements, std::int64_t room) const {
    const auto found = std::find_if(by_work.begin(), by_work.end(), [&](const Place& place) {
      return owned[to_size(std::get<int>(place))] + elements <= room;
    });
    return found == by_work.end() ? -1 : std::get<int>(*found);
  }
  void add(const RoundMember& member, const MatrixClass& shape, const std::vector<PartOfRank>& parts) {
    const std::size_t owner = to_size(member.owner);
    members.push_back(member);
    by_work.erase(place_of(member.owner));
    work[owner] += shape.flops;
    by_work.insert(place_of(member.owner));
    owned[owner] += shape.elements;
    for (const PartOfRank& part : parts) held[to_size(part.rank)] += part.elements;
    sum += shape.flops;
    most = std::max(most, work[owner]);
    evenness.push_back(most > 0 ? sum / (static_cast<double>(work.size()) * most) : 1);
  }
  // The most matrices, from the first on, that are nearly as even as any number of them.
  std::size_t longest_even() const {
    const double best = *std::max_element(evenness.begin(), evenness.end());
    std::size_t n = evenness.size();
    while (evenness[n - 1] < best - even_loss) --n;
    return n;
  }

  using Place = std::tuple<double, double, int>;  // work of the round, and before it; the rank
  Place place_of(int rank) const { return {work[to_size(rank)], work_before[to_size(rank)], rank}; }

  const std::vector<double>& work_before;
  std::set<Place> by_work;
  std::vector<RoundMember> members;
  std::vector<double> evenness;  // of as many of them
  std::vector<double> work;
  std::vector<std::int64_t> owned, held;
  double sum = 0, most = 0;
};

class Dealer {
 public:
  Dealer(const std::vector<MatrixClass>& classes, int ranks, const HeldByRanks& held)
      : classes_(classes), ranks_(ranks), held_(held), next_(classes.size(), 0), work_(to_size(ranks), 0) {
    for (const MatrixClass& c : classes) {
      all_ += c.flops * static_cast<double>(c.matrices);
      room_ = std::max(room_, c.elements);
      left_ += c.matrices;
    }
  }

  std::vector<std::vector<RoundMember>> rounds() {
    std::vector<std::vector<RoundMember>> list;
    while (left_ > 0) {
      OpenRound round(work_);
      fill(round);
      round.members.resize(round.longest_even());
      for (const RoundMember& member : round.members) {
        ++next_[member.shape];
        work_[to_size(member.owner)] += classes_[member.shape].flops;
      }
      left_ -= round.members.size();
      list.push_back(std::move(round.members));
    }
    return list;
  }

 private:
  void fill(OpenRound& round) const {
    for (std::size_t c = 0; c < classes_.size(); ++c)
      for (std::size_t i = next_[c]; i < classes_[c].matrices; ++i) {
        const int owner = round.owner_of(classes_[c].elements, room_);
        const std::vector<PartOfRank> parts = held_(c, i);
        if (owner < 0 || !round.holds(parts)) break;
        round.add({c, i, owner}, classes_[c], parts);
        if (ranks_ > 1 && round.sum >= early * all_ && round.evenness.back() >= even_enough) return;
      }
  }

  const std::vector<MatrixClass>& classes_;
  int ranks_;
  const HeldByRanks& held_;
  std::vector<std::size_t> next_;  // of each class
  std::vector<double> work_;       // of the rounds so far, by rank
  double all_ = 0;
  std::int64_t room_ = most_stacked;
  std::size_t left_ = 0;
};

}  // namespace

std::vector<std::vector<RoundMember>> matrix_rounds(const std::vector<MatrixClass>& classes, int ranks,
                                                    const HeldByRanks& held) {
  return Dealer(classes, ranks, held).rounds();
}

}  // namespace forge
