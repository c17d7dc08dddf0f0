#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "train/metrics.hpp"

namespace forge {

// A run's state of spikes, which every checkpoint has.
struct SpikeState {
  std::vector<NumberRange> excluded;  // places of the data's order that the run leaves out: ascending, apart
  std::vector<double> losses, norms;  // of the last steps with an update, the oldest first
  std::int64_t acts = 0;              // updates that were left out, and returns to a checkpoint

  bool operator==(const SpikeState&) const = default;
};
// A line each: "acts N", "excluded FIRST LAST", "step LOSS NORM" in hexadecimal; "" of a state that holds nothing.
std::string to_text(const SpikeState& state);
// BadCheckpoint, which begins with `where`, of a text that is none.
SpikeState spike_state_from(const std::string& text, const std::string& where);
// `more`, in any order, beside the excluded places.
void add_places(std::vector<NumberRange>& excluded, const std::vector<NumberRange>& more);

// A spike: a loss, or a gradient norm before clipping, above a multiple of its median over the last train.spike_window
// steps that made an update (Chowdhery et al. 2022, "PaLM", arXiv 2204.02311, section 5.1: restart before the spike and
// leave its batches out).
class SpikeWatch {
 public:
  SpikeWatch(const TrainDeck& deck, SpikeState state);
  bool watches() const { return deck_.spike != SpikeAction::none; }
  // "loss 9.31 is 2.1 times the median of 100 steps"; "": the step, whose numbers are finite, is none.
  std::string spike_in(double loss, double norm) const;
  // The action on a spike; behind train.spike_most of them a line in the log.
  SpikeAction action() const { return state_.acts < deck_.spike_most ? deck_.spike : SpikeAction::log; }
  void add_act() { ++state_.acts; }
  // Adds a step that made an update.
  void add(double loss, double norm);
  const SpikeState& state() const { return state_; }
  // For a run that goes on behind a checkpoint with `found`, without `places` as well; earlier acts and exclusions
  // stay.
  void go_back(const SpikeState& found, const std::vector<NumberRange>& places);

 private:
  std::size_t window() const { return static_cast<std::size_t>(deck_.spike_window); }
  TrainDeck deck_;
  SpikeState state_;
};

}  // namespace forge
