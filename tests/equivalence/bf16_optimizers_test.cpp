#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "../long_run.hpp"
#include "config/optimizer_table.hpp"
#include "cover.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

// SOAP's first update makes bases and moves no matrix.
std::int64_t steps_of(const Deck& deck) {
  return row_of(deck.optimizer.name).rotates() ? 3 : 2;
}

// What a gradient in bf16 differs from fp64's by, relative to its size: precision_test.cpp derives it, 3 u √N behind N
// roundings of relative size u = 2^−8, of models of moderate size.
double gradient_bound(const Deck& deck) {
  return 3 * 0x1p-8 * std::sqrt(30.0 * static_cast<double>(deck.model.layers) + 5);
}

// What that makes of an optimizer's first steps: the distance of the weights from fp64's over the distance that those
// have moved, for gradients of relative error e. State and weights are fp32, whose rounding is beside it.
//
// SGD is linear in clipped gradients: e of the gradient and e of its norm, 2 e.
//
// The first steps of AdamW, Lion, schedule-free AdamW and Adafactor are, in the main, the signs of the gradient's
// entries. Of an entry of deviation s with an independent error of deviation e s the sign turns with probability
// atan(e) / π, and then the step is wrong by twice its size: sqrt(4 atan(e) / π).
//
// Muon and NorMuon make all singular values alike, which is the sign of a matrix. Of a white matrix the first order in
// e is less than e: sqrt(2 E[1 / (x + y)²]) e with x and y of the quarter circle law, above the 1/n of n = 40 rows. A
// gradient isn't white and has directions that the error outweighs; those turn, as entries do, and the bound is theirs.
//
// SOAP's steps are those of AdamW in a basis from the gradients before, which turns with them: signs, once more.
//
// With moments in bf16 an update is made of numbers that have been rounded, each by at most 2^−7 of itself: of a
// relative error e + 2^−7. Sums of gradients in bf16 have been rounded so once for each microbatch and use, of which
// there are fewer than the gradient's own roundings: a table that two stages hold is used twice and summed once more.
double update_bound(const Deck& deck) {
  const auto stream =
      static_cast<double>(deck.mesh.dp_replicate * deck.mesh.dp_shard * deck.train.microbatch_sequences);
  const double sums = 2 * static_cast<double>(deck.train.global_batch_sequences) / stream + 1;
  const double e = gradient_bound(deck) + (deck.optimizer.moments == StateType::bf16 ? 0x1p-7 : 0) +
                   (deck.optimizer.gradients == StateType::bf16 ? 3 * 0x1p-8 * std::sqrt(sums) : 0);
  return deck.optimizer.name == OptimizerName::sgd ? 2 * e : std::sqrt(4 * std::atan(e) / std::numbers::pi);
}

// What master weights in bf16 add to that, of the weights behind the run: each update rounds a weight up with a
// probability of p spacings, a variance of p (1 − p) ≤ 1/4 spacing²; so does, within half a spacing, the start.
double weight_rounding(const Deck& deck, const Tensors& weights) {
  if (deck.optimizer.master_weights != StateType::bf16) return 0;
  double squares = 0;
  for (const auto& [name, values] : weights)
    for (const double value : values) squares += std::pow(std::ldexp(1.0, std::ilogb(value) - 7), 2);
  return std::sqrt(static_cast<double>(steps_of(deck) + 1) / 4 * squares);
}

Deck deck_of(Deck deck, OptimizerName name) {
  deck.optimizer.name = name;
  deck = with_training(deck, steps_of(deck));
  deck.optimizer.warmup_steps = 0;
  deck.optimizer.schedule = RateSchedule::constant;
  deck.data.validation_files.clear();
  deck.train.validate_every_steps = deck.train.validation_sequences = 0;
  deck.model.initial_std = 0.1;  // moderate
  return deck;
}

std::string problem_of(const Deck& model, References& references) {
  Deck deck = model, wide = model;
  deck.train.precision = PrecisionName::bf16;
  wide.train.precision = PrecisionName::fp64;
  wide.optimizer.moments = wide.optimizer.master_weights = wide.optimizer.gradients = StateType::compute_default;
  for (Deck* d : {&deck, &wide})
    if (const auto rule = illegality(*d); !rule.empty()) return "is refused: " + rule;
  const LayoutResult& exact = references.of(wide, steps_of(wide));
  Deck one = one_rank(wide);
  if (const auto rule = illegality(one); !rule.empty()) return "no reference: " + rule;
  double moved = 0, apart = 0;
  for (const auto& [name, values] : initial_tensors(one))
    for (std::size_t i = 0; i < values.size(); ++i) moved += std::pow(exact.parameters.at(name)[i] - values[i], 2);
  RunOptions options;
  options.train_steps = steps_of(deck);
  options.whole = false;
  options.one = &exact;
  const LayoutResult result = run_threads(deck, options);
  if (!result.problem.empty()) return result.problem;
  for (const auto& [name, values] : exact.parameters) {
    const Deviation& deviation = result.parameter_deviations.at(name);
    if (deviation.owned != static_cast<std::int64_t>(values.size())) return name + " is not owned once";
    apart += deviation.squares;
  }
  const double error = std::sqrt(apart / moved),
               bound = update_bound(deck) + weight_rounding(deck, exact.parameters) / std::sqrt(moved);
  if (error > 0 && error <= bound) return "";
  return "the weights are " + std::to_string(error) + " of what they moved from fp64's, and the bound is " +
         std::to_string(bound);
}

// Dense models, tied and with latent attention: what routers choose follows bf16.
void expect_within_rounding(OptimizerName name, StateType states, std::size_t stride) {
  std::vector<LayoutCase> cases;
  for (const int ranks : {2, 4, 8})
    for (const LayoutCase& c : thinned(drawn_layouts(ranks, 97), stride)) {
      cases.push_back({c.name, deck_of(c.deck, name)});
      if (states == StateType::compute_default) continue;
      cases.back().deck.optimizer.master_weights = cases.back().deck.optimizer.gradients = states;
      if (!row_of(name).rotates()) cases.back().deck.optimizer.moments = states;
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return problem_of(c.deck, references); };
  EXPECT_GE(cases.size(), 48 / stride_of(stride));
  EXPECT_EQ(failures_of(cases, cases.size(), check), "") << row_of(name).word;
}

TEST(Bf16Optimizers, AreWithinRoundingOfFp64) {
  for (std::size_t i = 0; i < optimizer_table.size(); ++i)
    expect_within_rounding(static_cast<OptimizerName>(i), StateType::compute_default, 8);
}

// What they keep, the weights and the sums of gradients in bf16, too.
TEST(Bf16Optimizers, WithStatesInBf16AreWithinRoundingOfFp64) {
  for (const OptimizerName name : {OptimizerName::adamw, OptimizerName::lion, OptimizerName::sgd, OptimizerName::muon,
                                   OptimizerName::normuon, OptimizerName::soap})
    expect_within_rounding(name, StateType::bf16, 16);
}

}  // namespace
}  // namespace forge::test
