#include <gtest/gtest.h>

#include <cstdlib>

#include "core/random.hpp"
#include "cover.hpp"
#include "run_threads.hpp"

// A sample of the layouts of tests/equivalence through the CUDA sources, drawn by the text of FORGE_SAMPLE:
// tests/run.sh gives the commit, so that others are taken every time. Each rank is a thread with a device of its own.

namespace forge::test {
namespace {

std::uint64_t sample_key() {
  const char* text = std::getenv("FORGE_SAMPLE");
  return hash_of(text ? text : "");
}

// The smallest batch that is legal: an emulated device is slow.
Deck with_small_batch(const Deck& deck) {
  for (const std::int64_t sequences : {4, 8}) {
    Deck small = deck;
    small.train.global_batch_sequences = sequences;
    if (Deck checked = small; illegality(checked).empty()) return small;
  }
  return deck;
}

// All meshes of so many ranks, dense and with experts.
std::vector<LayoutCase> sample(int ranks) {
  std::vector<LayoutCase> cases;
  for (const auto& list : {drawn_layouts(ranks, sample_key()), drawn_moe_layouts(ranks, sample_key())})
    for (const LayoutCase& c : list) cases.push_back({c.name, with_small_batch(c.deck)});
  return cases;
}

TEST(Sample, GradientsOfTwoRanksEqualOne) {
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); };
  EXPECT_EQ(failures_of(sample(2), 2 * 5, check), "");
}

TEST(Sample, GradientsOfFourRanksEqualOne) {
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); };
  EXPECT_EQ(failures_of(sample(4), 2 * 15, check), "");
}

// Updates, parameters that are gathered again, and validation, which refills its batches under pending copies.
TEST(Sample, TrainingOfTwoRanksEqualsOne) {
  constexpr std::int64_t steps = 2;
  std::vector<LayoutCase> cases;
  const auto all = sample(2);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((i + sample_key()) % 5 >= 2) continue;  // of each five meshes two
    cases.push_back({all[i].name, with_training(all[i].deck, steps)});
    cases.back().deck.optimizer.warmup_steps = 1;
    cases.back().deck.train.validation_sequences = 5;
  }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, steps, 1e-9); };
  EXPECT_EQ(failures_of(cases, 4, check), "");
}

}  // namespace
}  // namespace forge::test
