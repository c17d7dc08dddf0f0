#include <gtest/gtest.h>

#include "comm/thread_communicator.hpp"
#include "config/optimizer_table.hpp"
#include "restarts.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t steps = 6;

Deck deck_of(OptimizerName name, const std::string& directory) {
  Deck deck = test_models()[0].deck;
  deck.train.precision = PrecisionName::fp64;
  deck.train.steps = steps;
  deck.optimizer.name = name;
  deck.optimizer.schedule = RateSchedule::constant;
  deck.checkpoint.directory = directory;
  deck.checkpoint.every_steps = 1;
  return deck;
}

auto from_checkpoint(const std::string& path) {
  return [path](Rank<double>& rank) {
    rank.session->initialise();
    std::vector<std::string> notes;
    return rank.restart_from(path, notes);
  };
}
// What a reset means: the parameters of a checkpoint, its step, and an optimizer that knows of no update.
auto from_its_model(const std::string& path, std::int64_t step) {
  return [=](Rank<double>& rank) {
    Deck deck = rank.setup.deck;
    deck.checkpoint.model_from = path;
    std::vector<std::string> notes;
    load_model(*rank.session, deck, notes);
    return RunProgress{step, 0, 0};
  };
}

const Layout one{"one rank", {1, 1, 1, 1, 1}}, shards{"zero 3", {1, 1, 2, 1, 1}, 3}, columns{"tp 2", {1, 1, 1, 1, 2}};

TEST(ResetOptimizer, TakesParametersStepAndData) {
  const Scratch scratch;
  using Pair = std::pair<OptimizerName, OptimizerName>;
  for (const auto& [before, after] : {Pair{OptimizerName::adamw, OptimizerName::lion},
                                      {OptimizerName::schedule_free, OptimizerName::normuon},
                                      {OptimizerName::muon, OptimizerName::adafactor},
                                      {OptimizerName::sgd, OptimizerName::adamw}}) {
    const std::string name = row_of(after).word;
    trained_state(deck_of(before, scratch.path / (name + "_before")), shards, from_initial_values());
    const std::string from = std::string(scratch.path / (name + "_before/")) + step_name(3);
    Deck deck = deck_of(after, scratch.path / (name + "_after"));
    deck.checkpoint.reset_optimizer = true;
    deck.optimizer.weight_decay = 0.2;
    const WholeState end = trained_state(deck, columns, from_checkpoint(from));
    deck.checkpoint.directory = scratch.path / (name + "_model");
    EXPECT_EQ(end, trained_state(deck, columns, from_its_model(from, 3))) << name;
    // The run's own checkpoints have its optimizer's state.
    const std::string own = std::string(scratch.path / (name + "_after/")) + step_name(5);
    deck.checkpoint.directory = scratch.path / (name + "_again");
    EXPECT_EQ(end, trained_state(deck, columns, from_checkpoint(own))) << name;
  }
}

TEST(ResetOptimizer, IsAskedFor) {
  const Scratch scratch;
  trained_state(deck_of(OptimizerName::adamw, scratch.path / "before"), one, from_initial_values());
  const Deck deck = deck_of(OptimizerName::lion, scratch.path / "after");
  try {
    trained_state(deck, one, from_checkpoint(std::string(scratch.path / "before/") + step_name(3)));
    FAIL() << "another optimizer's checkpoint";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("optimizer.name = lion, the checkpoint has adamw"), std::string::npos)
        << error.what();
  }
}

// What whole matrices have kept is nothing that AdamW could go on with.
TEST(ResetOptimizer, IsAskedForWhereAGroupsMatricesGetAdamw) {
  const Scratch scratch;
  for (const OptimizerName name : {OptimizerName::muon, OptimizerName::soap}) {
    const std::string directory = scratch.path / row_of(name).word;
    trained_state(deck_of(name, directory), one, from_initial_values());
    Deck deck = deck_of(name, directory + "_after");
    deck.optimizer.groups = {{"layers.*", {}, {}, OptimizerName::adamw}};
    try {
      trained_state(deck, one, from_checkpoint(directory + "/" + step_name(3)));
      FAIL() << row_of(name).word;
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("has no tensor of this name"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace forge::test
