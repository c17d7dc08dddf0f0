#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "cover.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

// Dimensions that nobody chose.
TEST(RandomModels, GradientsEqualOneRank) {
  std::vector<LayoutCase> cases;
  for (std::uint64_t key = 0; key < 400; ++key) cases.push_back(drawn_model(key));
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); };
  EXPECT_EQ(failures_of(thinned(cases, 1), part_of(400, 1), check), "");
}

// One rank's own gradients don't depend on how the batch is cut into microbatches, nor on any choice but the mesh.
TEST(RandomModels, OneRankDoesNotDependOnMicrobatches) {
  std::vector<LayoutCase> cases;
  for (std::uint64_t key = 0; key < 40; ++key) {
    LayoutCase c = drawn_model(key);
    c.deck = one_rank(c.deck);
    c.deck.train.microbatch_sequences = c.deck.train.global_batch_sequences;
    cases.push_back(c);
  }
  References references;
  EXPECT_EQ(failures_of(cases, 40, [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); }), "");
}

}  // namespace
}  // namespace forge::test
