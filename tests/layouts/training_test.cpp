#include <gtest/gtest.h>

#include "cover.hpp"
#include "models.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t steps = 10;

Deck with_training(Deck deck) {
  deck.train.steps = steps;
  deck.optimizer.warmup_steps = 3;
  // 13 sequences: the last ranks' shares end with padding.
  deck.data.validation_files = {token_file(deck.model.vocabulary, 2049)};
  deck.train.validate_every_steps = 4;
  deck.train.validation_sequences = 13;
  return deck;
}

// Ten steps: losses, norms, parameters and the validation loss after them. Every mesh up to 8 ranks.
TEST(TenSteps, EqualOneRank) {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (LayoutCase c : drawn_layouts(ranks, 2)) cases.push_back({c.name, with_training(c.deck)});
  EXPECT_GE(cases.size(), 96u);
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, steps, 1e-9); };
  EXPECT_EQ(failures_of(cases, check), "");
}

TEST(TenSteps, OnMoreRanksEqualOneRank) {
  std::vector<LayoutCase> cases;
  for (const int ranks : {12, 16, 32}) {
    const auto all = drawn_layouts(ranks, 3);
    for (std::size_t i = static_cast<std::size_t>(ranks) % 7; i < all.size(); i += 12)
      cases.push_back({all[i].name, with_training(all[i].deck)});
  }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, steps, 1e-9); };
  EXPECT_EQ(failures_of(cases, check), "");
}

}  // namespace
}  // namespace forge::test
