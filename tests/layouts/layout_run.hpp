#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "config/deck.hpp"

namespace forge::test {

// What a run came to, on the rank that has whole tensors; `problem` on every rank.
struct LayoutResult {
  double loss = 0, total_loss = 0, grad_norm = 0;         // of step 1
  std::map<std::string, std::vector<double>> gradients;   // of step 1, whole tensors
  std::vector<double> losses, norms;                      // of training steps
  std::map<std::string, std::vector<double>> parameters;  // after training
  std::string problem;  // what this rank found wrong by itself: memory other than planned, bytes other than predicted
};

// The gradients of step 1 of a checked deck on all ranks of `world`, and `train_steps` steps of training.
LayoutResult run_layout(std::unique_ptr<Communicator> world, const Deck& deck, std::int64_t train_steps);

// "" where a result equals one rank's: loss, gradient norm and every gradient within DESIGN's bound, times `scale`
// (eps of the precision over that of fp64).
std::string difference(const LayoutResult& result, const LayoutResult& one, double scale);
// Of the losses and norms of training, and the parameters after it: relative deviations of at most `bound`.
std::string training_difference(const LayoutResult& result, const LayoutResult& one, double bound);

// "pp 2, dp 1 x 2, cp 1, tp 2; zero 3 …": for messages.
std::string text_of(const Deck& deck);

}  // namespace forge::test
