#include "layout/matrix_rounds.hpp"

#include <algorithm>
#include <tuple>

#include "core/to_size.hpp"

namespace forge {

namespace {

// Evenness of a round: the mean of its owners' work, of the busiest one's. Enough to end it early, and what may be lost
// for a longer round.
constexpr double even_enough = 0.97, even_loss = 0.02;
constexpr double early = 1.0 / 8;  // of all work

// A round that is filled: by rank the work, elements of its matrices, and elements that it holds.
struct OpenRound {
  explicit OpenRound(int ranks) : work(to_size(ranks), 0), owned(to_size(ranks), 0), held(to_size(ranks), 0) {}

  bool holds(const std::vector<std::int64_t>& more) const {
    for (std::size_t r = 0; r < held.size(); ++r)
      if (more[r] > 0 && held[r] > 0 && held[r] + more[r] > most_held) return false;
    return true;
  }
  void add(const RoundMember& member, const MatrixClass& shape, const std::vector<std::int64_t>& parts) {
    const std::size_t owner = to_size(member.owner);
    members.push_back(member);
    work[owner] += shape.flops;
    owned[owner] += shape.elements;
    for (std::size_t r = 0; r < held.size(); ++r) held[r] += parts[r];
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
      OpenRound round(ranks_);
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
        const int owner = owner_in(round, classes_[c].elements);
        const std::vector<std::int64_t> parts = held_(c, i);
        if (owner < 0 || !round.holds(parts)) break;
        round.add({c, i, owner}, classes_[c], parts);
        if (ranks_ > 1 && round.sum >= early * all_ && round.evenness.back() >= even_enough) return;
      }
  }
  // Of the ranks with room the one with the least work of the round, of those the one with the least of all rounds
  // before; −1: none has room.
  int owner_in(const OpenRound& round, std::int64_t elements) const {
    int best = -1;
    const auto order = [&](int r) { return std::tuple(round.work[to_size(r)], work_[to_size(r)]); };
    for (int r = 0; r < ranks_; ++r)
      if (round.owned[to_size(r)] + elements <= room_ && (best < 0 || order(r) < order(best))) best = r;
    return best;
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
