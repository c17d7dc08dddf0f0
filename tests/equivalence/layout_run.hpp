#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/mesh.hpp"
#include "config/deck.hpp"
#include "plan/setup.hpp"

namespace forge::test {

using Tensors = std::map<std::string, std::vector<double>>;

// How far the ranks' parts of a tensor are from one rank's: every copy, whether it counts in norms or not.
struct Deviation {
  double largest = 0;      // max|a − b|; infinite where an element is NaN
  double squares = 0;      // Σ (a − b)² over the elements that count in norms
  std::int64_t owned = 0;  // how many those are
};
using Deviations = std::map<std::string, Deviation>;

// The experts of every row: by layer, sample and position.
using Routing = std::map<std::array<std::int64_t, 3>, std::vector<std::int32_t>>;

// The result of a run.
struct LayoutResult {
  double loss = 0, total_loss = 0, grad_norm = 0;   // of step 1
  Tensors gradients;                                // of step 1, whole tensors, on the first rank
  Deviations gradient_deviations;                   // of this rank's part
  std::vector<double> losses, total_losses, norms;  // of training steps
  std::vector<double> source_losses;                // of training steps and the sources of a mixture
  std::vector<double> reports;                      // of training steps: largest logits, norms of units
  std::vector<double> router_reports;               // of training steps: loads, drops, losses, biases of each layer
  std::int64_t clipped_heads = 0;                   // of all training steps
  double validation_loss = 0;                       // after training, where the deck has validation files
  Tensors parameters;                               // after training
  Deviations parameter_deviations;
  std::vector<double> texts;    // of pairs: log-probabilities by the model that the run starts with
  Routing routing;              // of step 1's rows on this rank
  std::int64_t records = 0;     // of those, in two hops, (row, other node) with an expert there
  std::int64_t rail_bytes = 0;  // sent to other nodes in step 1, over ep_rail
  std::set<float> amaxes;       // largest magnitudes of operands in FP8 in step 1, each once
  std::string problem;  // errors that this rank found by itself: memory, bytes sent or products other than planned
};

struct RunOptions {
  std::int64_t train_steps = 0;       // the deck's train.steps; 0: gradients only
  bool whole = true;                  // collect whole tensors
  const LayoutResult* one = nullptr;  // measure deviations from these whole tensors
  const Routing* routing = nullptr;   // choices of experts to take instead of the run's own
  bool alike = false;                 // see SegmentLines
  bool codes = false;                 // multiply codes of FP8, where the device and the recipe allow it
  KernelChoice kernels = asked_kernels();
  const std::vector<double>* references = nullptr;  // of all texts of pairs; null: near the model's own
};

// The gradients of step 1 of a checked deck on all ranks of `world`, and training. All ranks call it.
LayoutResult run_layout(std::unique_ptr<Communicator> world, const Deck& deck, const RunOptions& options);

// The parameters that a run of a checked fp64 deck starts with: whole tensors, on the first rank. All ranks call it.
Tensors initial_tensors(std::unique_ptr<Communicator> world, const Deck& deck);

// The result of all ranks: the first one's, the deviations and problems of all, and a problem where the ranks don't
// agree on a loss or norm to the last bit.
LayoutResult merged(std::vector<LayoutResult> ranks);

// "" where a result equals one rank's: loss, gradient norm and every gradient within DESIGN's bound, times `scale` (eps
// of the precision over fp64's). A result without any tensor differs.
std::string difference(const LayoutResult& result, const LayoutResult& one, double scale);
// Of the losses and norms of training, the parameters and the validation loss after it: relative deviations of at most
// `bound`.
std::string training_difference(const LayoutResult& result, const LayoutResult& one, double bound);
// "" where a result of one rank can serve as a reference: tensors of the whole model, none of them zero, a norm that is
// the tensors' norm, a loss that an untrained model has.
std::string triviality(const LayoutResult& one, const Deck& deck);

// "pp 2, dp 1 x 2, cp 1, tp 2; zero 3 …": for messages.
std::string text_of(const Deck& deck);

}  // namespace forge::test
