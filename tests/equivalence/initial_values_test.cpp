#include <gtest/gtest.h>

#include <cmath>

#include "../model/initial_formula.hpp"
#include "models.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

// A deck on a mesh, ZeRO 3, so that every rank draws a part.
LayoutCase on_mesh(const TestModel& model, const MeshDeck& mesh) {
  Choice choice;
  choice.zero_stage = 3;
  choice.accumulate = Accumulation::sharded;
  return {model.name, layout_deck(model.deck, mesh, choice, 0)};
}

// A model's parameters before any step, on one rank and on all axes at once, against the documented formula: the layout
// tests compare ranks with one rank, which draws by the same function.
TEST(InitialValues, OfAnyLayoutAreTheFormula) {
  MeshDeck one, all;
  one.dp_shard = 1;
  all.pp = all.dp_shard = all.tp = 2;
  std::vector<LayoutCase> cases;
  for (const TestModel& model : {test_models()[1], moe_models()[2], mtp_models()[4]})
    for (const MeshDeck& mesh : {one, all}) cases.push_back(on_mesh(model, mesh));
  EXPECT_EQ(cases.size(), 6u);
  const std::map<std::string, std::size_t> tensors_of{{"gpt2", 4 + 5 * 12},
                                                      {"deepseek", 3 + 5 * 9 + 2 * 3 + 3 * (4 + 18)},
                                                      {"deepseek, depth 2", 3 + 7 * 9 + 2 * 3 + 5 * (4 + 18) + 2 * 4}};
  for (const LayoutCase& c : cases) {
    Deck deck = c.deck;
    ASSERT_EQ(illegality(deck), "") << c.name;
    const Tensors tensors = initial_tensors(deck);
    EXPECT_EQ(tensors.size(), tensors_of.at(c.name)) << c.name;
    const InitialFormula formula(deck.train.seed, deck.model);
    for (const auto& [name, values] : tensors)
      for (std::size_t i = 0; i < values.size(); ++i) {
        const long double exact = formula.value(name, i);
        ASSERT_LE(std::abs(values[i] - exact), formula.tolerance(exact)) << c.name << ", " << name;
      }
  }
}

}  // namespace
}  // namespace forge::test
