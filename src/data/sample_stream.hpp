#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "data/mixture.hpp"
#include "data/sample_order.hpp"
#include "data/token_set.hpp"

namespace forge {

// A part of a run's data: files of their own, with an order of their own.
struct DataSource {
  std::string name;
  const TokenSet* set = nullptr;
  SampleSequence sequence;
  std::int64_t most_samples = std::numeric_limits<std::int64_t>::max();  // that it may give, by its epochs
};

// Which sample of which source stands at which place of the data's order: a pure function of the place, for any number
// of ranks. A run takes the places one after the other, but for those that it leaves out.
class SampleStream {
 public:
  // One set; its losses aren't counted apart.
  explicit SampleStream(DataSource source)
      : apart_(false), sources_{std::move(source)}, order_(std::vector<MixtureOrder::Phase>{{0, {1}}}) {}
  // Pieces of samples from a place on; empty: none are cut.
  struct PiecePhase {
    std::int64_t begin = 0;
    SamplePieces pieces;
  };
  void cut(std::vector<PiecePhase> phases) { pieces_ = std::move(phases); }
  // A mixture: the phases have a weight for each source.
  SampleStream(std::vector<DataSource> sources, const std::vector<MixtureOrder::Phase>& phases)
      : apart_(true), sources_(std::move(sources)), order_(phases) {}

  // Places that the run leaves out: ascending ranges that don't touch.
  void exclude(std::vector<NumberRange> places) { excluded_ = std::move(places); }
  const std::vector<NumberRange>& excluded() const { return excluded_; }
  // The place that the run takes behind `taken` others.
  std::int64_t place(std::int64_t taken) const;
  // The next `count` places that it takes behind `taken` others.
  std::vector<NumberRange> places(std::int64_t taken, std::int64_t count) const;

  struct Place {
    std::size_t source = 0;
    std::int64_t sample = 0;
  };
  Place at(std::int64_t place) const {
    const MixtureOrder::Draw draw = order_.at(place);
    return {draw.source, sources_[draw.source].sequence.at(draw.index)};
  }
  // How the sample at a place is cut; null: it isn't.
  const SamplePieces* pieces(std::int64_t place) const {
    const auto next = std::upper_bound(pieces_.begin(), pieces_.end(), place,
                                       [](std::int64_t at, const PiecePhase& phase) { return at < phase.begin; });
    return next == pieces_.begin() ? nullptr : &std::prev(next)->pieces;
  }
  const TokenSet& set(std::size_t source = 0) const { return *sources_[source].set; }
  const std::vector<DataSource>& sources() const { return sources_; }
  // How many sources are counted apart; 0: the data is no mixture.
  std::size_t apart() const { return apart_ ? sources_.size() : 0; }
  // Samples of a source among the first ones that the run takes.
  std::int64_t drawn(std::size_t source, std::int64_t taken) const;
  // Throws BadInput, naming the step, where a source has to give more than it may in so many steps.
  void check_ends(std::int64_t steps, const BatchSizes& batches) const;

 private:
  // Samples of a source up to the last one that is taken, those that are left out as well.
  std::int64_t reached(std::size_t source, std::int64_t taken) const;
  bool apart_;
  std::vector<DataSource> sources_;
  MixtureOrder order_;
  std::vector<PiecePhase> pieces_;  // by their places
  std::vector<NumberRange> excluded_;
};

}  // namespace forge
