#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <optional>

#include "../long_run.hpp"
#include "comm/environment.hpp"
#include "config/fp8_recipe.hpp"
#include "config/optimizer_table.hpp"
#include "cover.hpp"
#include "run_threads.hpp"

// Run by mpirun on 8 ranks (tests/mpi_main.cpp): the world is cut into groups, each of which runs a layout of its own.

namespace forge::test {

extern Environment* environment;

namespace {

constexpr std::int64_t steps = 3;

// A layout of this group's ranks; the first of them compares it with one rank of its own process. `optimizer`: trains
// with it.
std::string run_case(const LayoutCase& c, Communicator& group, References& references,
                     std::optional<OptimizerName> optimizer) {
  Deck deck = c.deck;
  const bool trains = optimizer.has_value();
  if (trains) deck.train.steps = steps;
  deck.optimizer.name = optimizer.value_or(deck.optimizer.name);
  if (row_of(deck.optimizer.name).averages) deck.optimizer.schedule = RateSchedule::constant;
  if (const auto rule = illegality(deck); !rule.empty()) return "is refused: " + rule;
  RunOptions options;
  options.train_steps = trains ? steps : 0;
  const LayoutResult result = run_layout(group.duplicate(), deck, options);
  if (group.rank() != 0) return result.problem;
  const LayoutResult& one = references.of(deck, options.train_steps);
  const std::string wrong = difference(result, one, 1);
  return wrong.empty() && trains ? training_difference(result, one, 1e-9) : wrong;
}

// The optimizer of the n-th layout that trains. Lion and Adafactor make much of the rounding of key biases, which have
// no gradient.
OptimizerName optimizer_of(std::size_t n, const Deck& deck) {
  constexpr std::array all{OptimizerName::muon,    OptimizerName::adamw, OptimizerName::adafactor,
                           OptimizerName::normuon, OptimizerName::lion,  OptimizerName::schedule_free,
                           OptimizerName::soap};
  const OptimizerName name = all[n % all.size()];
  const bool noise = name == OptimizerName::lion || name == OptimizerName::adafactor;
  return noise && deck.model.qkv_bias ? OptimizerName::sgd : name;
}

// A deck in FP8, with all else in fp64; recipes take turns.
void set_fp8(Deck& deck, std::size_t n) {
  deck.train.precision = PrecisionName::fp8;
  deck.train.fp8_carrier = Fp8Carrier::fp64;
  deck.train.fp8_recipe = static_cast<Fp8Recipe>(n % 4);
  deck.train.fp8_experts = deck.model.experts > 0 && n % 2 == 0;
  deck.train.fp8_gather = deck.train.zero_stage == 3 && deck.train.gather == GatherPolicy::microbatch &&
                          deck.train.fp8_recipe != Fp8Recipe::row;
}

// Every mesh of 2 … 8 ranks, once of a dense model and once of one with experts, or each third of these layouts
// (third_volume()); each seventh trains for some steps, in turns with each optimizer. Each eleventh is in FP8.
TEST(MpiLayouts, EqualOneRank) {
  const auto world = environment->make_world();
  References references;
  std::string failures;
  std::int64_t run = 0;
  for (int ranks = 2; ranks <= world->size(); ++ranks) {
    auto cases = drawn_layouts(ranks, 7);
    const auto with_experts = drawn_moe_layouts(ranks, 7);
    cases.insert(cases.end(), with_experts.begin(), with_experts.end());
    cases = thinned(cases, 1);
    const auto groups = static_cast<std::size_t>(world->size() / ranks);
    const auto mine = static_cast<std::size_t>(world->rank() / ranks);
    const auto group = world->split(mine < groups ? static_cast<int>(mine) : -1, world->rank());
    for (std::size_t i = mine; group && i < cases.size(); i += groups) {
      std::string wrong;
      std::optional<OptimizerName> optimizer;
      try {
        if (i % 7 == 3) optimizer = optimizer_of(i / 7 + static_cast<std::size_t>(ranks), cases[i].deck);
        if (i % 11 == 5) set_fp8(cases[i].deck, i / 11 + static_cast<std::size_t>(ranks));
        wrong = run_case(cases[i], *group, references, optimizer);
      } catch (const std::exception& error) {
        // The others of the group may wait for this rank for ever.
        std::fprintf(stderr, "%s: %s: %s\n", cases[i].name.c_str(), text_of(cases[i].deck).c_str(), error.what());
        environment->abort(1);
      }
      if (group->rank() == 0) ++run;
      if (wrong.empty()) continue;
      const std::string trained = optimizer ? " with " + std::string(row_of(*optimizer).word) : "";
      failures += cases[i].name + ": " + text_of(cases[i].deck) + trained + ": " + wrong + "\n";
    }
  }
  std::string all;
  for (const std::string& text : world->gather_host(failures)) all += text;
  EXPECT_EQ(all, "");
  // Of 2 … 8 ranks, each with a dense model and with one that has experts.
  constexpr std::size_t meshes[] = {5, 5, 15, 5, 25, 5, 35};
  ASSERT_LE(world->size(), 8);
  std::size_t expected = 0;
  for (int ranks = 2; ranks <= world->size(); ++ranks) expected += part_of(2 * meshes[ranks - 2], 1);
  world->sum_host({&run, 1});
  EXPECT_EQ(run, static_cast<std::int64_t>(expected));
}

}  // namespace
}  // namespace forge::test
