#include <gtest/gtest.h>

#include "../checkpoint/restarts.hpp"
#include "../long_run.hpp"
#include "config/batch_ramp.hpp"
#include "cover.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t steps = 10;

// Steps 1 to 3 and 8 to 10 have the deck's batch, those between two of it, with twice the microbatches.
Deck with_ramp(Deck deck) {
  TrainDeck& t = deck.train;
  const std::int64_t G = t.global_batch_sequences;
  t.global_batch_sequences = 2 * G;
  t.batch_ramp = {{1, 0, G}, {0, 3 * G * t.sequence_tokens, 2 * G}, {8, 0, G}};
  return deck;
}

// Ten steps, to the bound of TenSteps, which AdamW has without a ramp: losses, norms, every parameter and the
// validation loss; pipelines of all schedules among the layouts.
TEST(BatchRamp, EqualsOneRank) {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    auto drawn = drawn_layouts(ranks, 91);
    const auto experts = drawn_moe_layouts(ranks, 93);
    drawn.insert(drawn.end(), experts.begin(), experts.end());
    for (const LayoutCase& c : drawn) cases.push_back({c.name, with_ramp(with_training(c.deck, steps))});
  }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, steps, 1e-9); };
  EXPECT_GE(cases.size(), 144u);
  const auto some = thinned(cases, 12);
  EXPECT_GE(std::count_if(some.begin(), some.end(), [](const LayoutCase& c) { return c.deck.mesh.pp > 1; }),
            third_volume() ? 1 : 4);
  EXPECT_EQ(failures_of(some, some.size(), check), "");
}

// One rank's run of so many steps at a constant rate, which doesn't know how long it is.
LayoutResult run_of(Deck deck, std::int64_t count) {
  deck = one_rank(deck);
  deck.train.precision = PrecisionName::fp64;
  deck.train.steps = count;
  deck.optimizer.schedule = RateSchedule::constant;
  if (const std::string rule = illegality(deck); !rule.empty()) throw Error(rule);
  RunOptions options;
  options.train_steps = count;
  return run_threads(deck, options);
}

// As long as batches are small a run is, to the bit, one that has small batches: samples, means over labels, and the
// scopes of routers' losses.
TEST(BatchRamp, BeginsAsARunOfSmallBatches) {
  for (const Deck& deck : {test_models()[0].deck, moe_models()[0].deck, moe_models()[2].deck}) {
    const LayoutResult small = run_of(deck, 3), ramped = run_of(with_ramp(deck), 4);
    ASSERT_EQ(small.problem + ramped.problem, "");
    ASSERT_EQ(ramped.norms.size(), 4u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(ramped.total_losses[i], small.total_losses[i]);
      EXPECT_EQ(ramped.norms[i], small.norms[i]);
    }
  }
}

Deck saved_deck(const std::string& directory) {
  Deck deck = with_ramp(test_models()[0].deck);
  deck.train.precision = PrecisionName::fp64;
  deck.train.steps = steps;
  deck.checkpoint.directory = directory;
  deck.checkpoint.every_steps = 1;
  return deck;
}

// Losses of the steps that are left, on a layout.
std::vector<double> losses_from(const Deck& model, const Layout& layout, const std::string& path) {
  const Deck deck = deck_on(model, layout);
  std::vector<double> losses;
  run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
    Rank<double> rank(world, deck);
    rank.session->initialise();
    std::vector<std::string> notes;
    const auto records = rank.train(path.empty() ? RunProgress{} : rank.restart_from(path, notes));
    for (const StepRecord& record : records) {
      if (world.rank() > 0) continue;
      losses.push_back(record.loss);
      EXPECT_EQ(record.sequences, rank.setup.batches.of(record.step));
      EXPECT_EQ(record.tokens, rank.setup.tokens_through(record.step));
    }
  });
  return losses;
}

// From before, at and behind both edges of the ramp: on the same layout bit for bit, on another one the same samples.
TEST(BatchRamp, GoesOnFromAnyStep) {
  const Scratch scratch;
  const Layout pipeline{"pp 2", {2, 1, 1, 1, 1}}, other{"zero 3, tp 2", {1, 1, 2, 1, 2}, 3};
  const std::string straight = scratch.path / "straight";
  const std::vector<double> losses = losses_from(saved_deck(straight), pipeline, "");
  ASSERT_EQ(losses.size(), static_cast<std::size_t>(steps));
  const WholeState end = whole_state(straight + "/" + step_name(steps));
  for (const std::int64_t step : {2, 3, 4, 7}) {
    const std::string from = straight + "/" + step_name(step), again = scratch.path / ("again" + std::to_string(step));
    const auto same = losses_from(saved_deck(again), pipeline, from);
    EXPECT_EQ(std::vector<double>(losses.begin() + step, losses.end()), same) << step;
    EXPECT_EQ(end, whole_state(again + "/" + step_name(steps))) << step;
    const auto others = losses_from(saved_deck(scratch.path / ("other" + std::to_string(step))), other, from);
    ASSERT_EQ(others.size(), same.size());
    for (std::size_t i = 0; i < same.size(); ++i) EXPECT_NEAR(others[i], same[i], 1e-10 * same[i]) << step << " " << i;
  }
}

// Batches of steps that have been may not become others, by whichever of the two keys.
TEST(BatchRamp, OnlyStepsToComeMayChange) {
  const Deck then = deck_on(saved_deck("checkpoints"), {"one rank", {1, 1, 1, 1, 1}});
  const std::string text = write_deck(then);
  const auto illegal = [&](std::int64_t step, auto change) {
    Deck now = then;
    change(now.train);
    std::string all;
    for (const std::string& line : deck_changes(now, text, "there", step).illegal) all += line + "\n";
    return all;
  };
  const auto shorter = [](TrainDeck& t) { t.batch_ramp.resize(2); };
  EXPECT_EQ(illegal(7, shorter), "");
  const std::string refused = illegal(8, shorter);
  EXPECT_NE(refused.find("train.batch_ramp = "), std::string::npos) << refused;
  EXPECT_NE(refused.find("that leave the batches as far as step 8"), std::string::npos) << refused;
  // The same batches so far, as a part of a ramp to larger ones.
  const auto larger = [](TrainDeck& t) {
    t.batch_ramp[1].global_batch_sequences = t.global_batch_sequences;
    t.batch_ramp[2] = {8, 0, 2 * t.global_batch_sequences};
    t.global_batch_sequences *= 2;
  };
  EXPECT_EQ(illegal(7, larger), "");
  EXPECT_NE(illegal(8, larger), "");
  EXPECT_NE(illegal(3, [](TrainDeck& t) { t.batch_ramp.clear(); }), "");
}

}  // namespace
}  // namespace forge::test
