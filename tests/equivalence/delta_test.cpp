#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "config/family.hpp"
#include "cover.hpp"
#include "models.hpp"
#include "run_threads.hpp"

// Layers of gated DeltaNet, on any layout that may have them.

namespace forge::test {
namespace {

bool takes_delta(const Deck& deck) {
  return deck.mesh.cp == 1 && deck.model.attention == AttentionKind::standard && deck.model.family != Family::gpt2;
}

// Sequences of one chunk, and of two or three.
Deck with_delta(Deck deck, std::size_t choice) {
  ModelDeck& m = deck.model;
  m.full_attention_interval = choice % 2 == 0 ? 2 : 3;
  m.linear_key_heads = 8 % deck.mesh.tp == 0 ? 8 : deck.mesh.tp;
  m.linear_value_heads = (choice % 3 == 0 ? 2 : 1) * m.linear_key_heads;
  m.linear_key_dim = 5;
  m.linear_value_dim = choice % 5 == 0 ? 3 : 6;
  m.linear_conv_taps = choice % 4 == 0 ? 2 : 4;
  m.attention_output_gate = choice % 2 == 1 && *tensor_names(m.family).qkv == 0;
  m.norm_epsilon = 1e-2;  // outputs of the rule are small at the start: a norm would enlarge what rounding leaves
  if (choice % 3 == 1) {
    deck.train.sequence_tokens = 144;
    m.max_positions = std::max<std::int64_t>(m.max_positions, 144);
  }
  return deck;
}

std::vector<LayoutCase> delta_cases(std::uint64_t first, std::int64_t steps) {
  std::vector<LayoutCase> cases;
  for (std::uint64_t key = first; key < first + 3; ++key)
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (const auto& list : {drawn_layouts(ranks, key), drawn_moe_layouts(ranks, key)})
        for (const LayoutCase& c : list)
          if (takes_delta(c.deck))
            cases.push_back({c.name, with_delta(steps > 0 ? with_training(c.deck, steps) : c.deck, cases.size())});
  return cases;
}

TEST(DeltaNet, GradientsEqualOneRank) {
  const std::vector<LayoutCase> cases = thinned(delta_cases(81, 0), 6);
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); };
  EXPECT_GE(cases.size(), 12u);
  EXPECT_EQ(failures_of(cases, cases.size(), check), "");
}

TEST(DeltaNet, TrainingEqualsOneRank) {
  constexpr std::int64_t steps = 4;
  const std::vector<LayoutCase> cases = thinned(delta_cases(85, steps), 12);
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, steps, 1e-9); };
  EXPECT_GE(cases.size(), 5u);
  EXPECT_EQ(failures_of(cases, cases.size(), check), "");
}

}  // namespace
}  // namespace forge::test
