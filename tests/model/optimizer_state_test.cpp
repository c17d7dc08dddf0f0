#include "model/optimizer_state.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/optimizer_table.hpp"

namespace forge::test {
namespace {

OptimizerState state_of(OptimizerName name, StateType moments = StateType::compute_default) {
  OptimizerDeck deck;
  deck.name = name;
  deck.moments = moments;
  return optimizer_state(deck, DType::f32);
}

// The names are those of checkpoints, the order is that of updates, which stochastic rounding follows.
std::vector<std::string> names_of(OptimizerName name, bool of_elements) {
  std::vector<std::string> names;
  for (const StateBuffer& buffer : state_of(name))
    if (buffer.is_of_elements() == of_elements) names.emplace_back(buffer.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(OptimizerStates, OfElementsAreInTheOrderOfUpdates) {
  using enum OptimizerName;
  EXPECT_EQ(names_of(adamw, true), (Names{"first_moment", "second_moment"}));
  EXPECT_EQ(names_of(lion, true), Names{"first_moment"});
  EXPECT_EQ(names_of(sgd, true), Names{"momentum"});
  EXPECT_EQ(names_of(schedule_free, true), (Names{"second_moment", "lead"}));
  EXPECT_EQ(names_of(muon, true), (Names{"momentum", "first_moment", "second_moment"}));
  EXPECT_EQ(names_of(normuon, true), names_of(muon, true));
  EXPECT_EQ(names_of(adafactor, true), Names{"second_moment"});
  EXPECT_EQ(names_of(soap, true), (Names{"first_moment", "second_moment"}));
}

TEST(OptimizerStates, OfMatricesHaveOwnersAndTheAccumulationType) {
  EXPECT_EQ(names_of(OptimizerName::normuon, false), Names{"second_moment_of_rows"});
  EXPECT_EQ(names_of(OptimizerName::adafactor, false), (Names{"second_moment_of_rows", "second_moment_of_columns"}));
  EXPECT_EQ(names_of(OptimizerName::soap, false), (Names{"first_moment", "bases", "bases", "bases", "bases", "bases"}));
  for (std::size_t i = 0; i < optimizer_table.size(); ++i) {
    const auto name = static_cast<OptimizerName>(i);
    const OptimizerRow& row = row_of(name);
    SCOPED_TRACE(row.word);
    EXPECT_EQ(keeps_of_matrices(state_of(name)), row.keeps(StateOwner::matrix_owner) || row.keeps(StateOwner::sharers));
    EXPECT_TRUE(row.whole_matrices() || !row.keeps(StateOwner::matrix_owner));
    for (const StateBuffer& buffer : state_of(name, StateType::bf16)) {
      EXPECT_TRUE(buffer.is_of_elements() || buffer.type == DType::f32) << buffer.name;
      EXPECT_EQ(buffer.averages, name == OptimizerName::schedule_free);
    }
  }
  EXPECT_EQ(state_of(OptimizerName::muon, StateType::bf16).front().type, DType::bf16);
}

TEST(OptimizerStates, BesideWholeMatricesAreThoseOfAdamw) {
  for (const OptimizerRow& row : optimizer_table) {
    if (!row.whole_matrices()) continue;
    Names beside;
    for (const StateSpec& spec : row.states)
      if (spec.of == KeptOf::others) beside.emplace_back(spec.name);
    EXPECT_EQ(beside, names_of(OptimizerName::adamw, true)) << row.word;
  }
}

TEST(OptimizerStates, TorchHasNamesForAllOfAnOptimizer) {
  EXPECT_EQ(torch_optimizers(), "adamw, sgd, muon, adafactor");
}

}  // namespace
}  // namespace forge::test
