#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "../long_run.hpp"
#include "config/optimizer_table.hpp"
#include "core/random.hpp"
#include "cover.hpp"
#include "in_pairs.hpp"
#include "models.hpp"
#include "run_threads.hpp"

// A sample of the layouts of tests/equivalence through the CUDA sources, drawn by the text of FORGE_SAMPLE:
// tests/run.sh gives the commit, so that others are taken every time. Each rank is a thread with a device of its own.

namespace forge::test {
namespace {

constexpr std::int64_t training_steps = 2;

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
std::vector<LayoutCase> sample(int ranks, std::uint64_t key = sample_key()) {
  std::vector<LayoutCase> cases;
  for (const auto& list : {drawn_layouts(ranks, key), drawn_moe_layouts(ranks, key)})
    for (const LayoutCase& c : list) cases.push_back({c.name, with_small_batch(c.deck)});
  return cases;
}

// Of so many cases every `stride`-th, from a drawn one on: how many.
std::size_t spread(std::size_t all, std::size_t stride) {
  return (all - sample_key() % stride + stride - 1) / stride;
}
// Of all meshes of so many ranks.
std::vector<LayoutCase> spread_sample(int ranks, std::size_t stride) {
  std::vector<LayoutCase> some;
  const auto all = sample(ranks);
  for (std::size_t i = sample_key() % stride; i < all.size(); i += stride) some.push_back(all[i]);
  return some;
}

void expect_one_rank(const std::vector<LayoutCase>& cases, std::size_t expected) {
  References references;
  EXPECT_EQ(failures_of(cases, expected, [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); }), "");
}

// All meshes, or each third; in a long run 25 draws of each, together 1,000 layouts.
void expect_all_meshes(int ranks, std::size_t meshes) {
  if (third_volume()) return expect_one_rank(spread_sample(ranks, 3), spread(2 * meshes, 3));
  const std::size_t draws = long_run() ? 25 : 1;
  std::vector<LayoutCase> cases = sample(ranks);
  for (std::size_t draw = 1; draw < draws; ++draw)
    for (const LayoutCase& c : sample(ranks, mix(sample_key(), draw))) cases.push_back(c);
  expect_one_rank(cases, draws * 2 * meshes);
}

TEST(Sample, GradientsOfTwoRanksEqualOne) {
  expect_all_meshes(2, 5);
}

TEST(Sample, GradientsOfFourRanksEqualOne) {
  expect_all_meshes(4, 15);
}

TEST(Sample, GradientsOfEightRanksEqualOne) {
  long_run() ? expect_one_rank(sample(8), 2 * 35)
             : expect_one_rank(spread_sample(8, stride_of(10)), spread(2 * 35, stride_of(10)));
}

TEST(Sample, GradientsOfManyRanksEqualOne) {
  expect_one_rank(spread_sample(12, long_run() ? 15 : 150), long_run() ? 10 : 1);
  if (long_run()) expect_one_rank(spread_sample(16, 14), 10);
}

// Four ranks of ep on two nodes, of a drawn model.
TEST(Sample, GradientsOfRowsInTwoHopsEqualOneRank) {
  auto models = moe_models();
  std::erase_if(models, [](const TestModel& m) { return m.name == "an empty expert"; });  // more are in a small batch
  const TestModel& model = models[sample_key() % models.size()];
  Deck deck = model.deck;
  deck.model.experts = 8;
  deck.model.experts_per_token = std::max<std::int64_t>(deck.model.experts_per_token, 1);
  if (deck.model.router_groups > 1) deck.model.router_groups = 4;
  deck.model.dispatch = DispatchMethod::automatic;  // of one rank: one hop
  deck = with_small_batch(layout_deck(deck, {.dp_shard = 4, .ep = 4, .etp = 1}, {}, sample_key()));
  deck.mesh.node_ranks = 2;
  expect_one_rank({{model.name, deck}}, 1);
}

// Gradients of all layers take turns in few places while the sums of the last ones travel. Whether a missing event
// shows depends on the order in which a device takes its streams: drawn anew in each of several runs. With ZeRO 2 no
// gathers keep the ranks together.
TEST(Sample, GradientsThatTakeTurnsInAPoolEqualOneRank) {
  constexpr std::size_t runs = 8;
  Deck deck = with_small_batch(test_models().front().deck);
  deck.mesh.dp_shard = 2;
  deck.train.zero_stage = 2;
  deck.train.microbatch_sequences = 1;
  const std::vector<LayoutCase> cases(runs, {"zero 2 on two ranks", deck});
  expect_one_rank(cases, runs);
}

// Forward and backward passes that take turns, of drawn models with and without experts, each in several orders of the
// device's streams.
TEST(Sample, PairsOfPassesGiveTheBitsOfPassesAlone) {
  const std::size_t runs = long_run() ? 50 : 2;
  std::vector<LayoutCase> cases;
  for (const int ranks : {2, 4}) {
    const auto all = sample(ranks);
    const bool one = long_run() || third_volume();  // deck; a long run takes it in many orders
    const std::size_t stride = one ? all.size() : ranks == 2 ? 3 : 7;
    for (std::size_t i = sample_key() % stride; i < all.size(); i += stride) {
      Deck deck = in_pairs(all[i].deck);
      deck.train.global_batch_sequences = 4 * deck.mesh.dp_replicate * deck.mesh.dp_shard;
      cases.insert(cases.end(), runs, {all[i].name, with_training(deck, training_steps)});
    }
  }
  EXPECT_EQ(failures_of(cases, cases.size(), [](const LayoutCase& c) { return equals_passes_alone(c.deck); }), "");
}

// Of each five meshes of two ranks two, which train.
std::vector<LayoutCase> training_sample(OptimizerName optimizer) {
  std::vector<LayoutCase> cases;
  const auto all = sample(2);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((i + sample_key()) % 5 >= 2) continue;
    cases.push_back({all[i].name, with_training(all[i].deck, training_steps)});
    // Key biases have no gradient but rounding, which Adafactor divides by its own size.
    const bool noise = optimizer == OptimizerName::adafactor && all[i].deck.model.qkv_bias;
    cases.back().deck.optimizer.name = noise ? OptimizerName::sgd : optimizer;
    cases.back().deck.optimizer.warmup_steps = 1;
    cases.back().deck.train.validation_sequences = 5;
  }
  return cases;
}

void expect_training_of_one_rank(OptimizerName optimizer) {
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, training_steps, 1e-9); };
  EXPECT_EQ(failures_of(training_sample(optimizer), 4, check), "");
}

// Updates, parameters that are gathered again, and validation, which refills its batches under pending copies.
TEST(Sample, TrainingOfTwoRanksEqualsOne) {
  expect_training_of_one_rank(OptimizerName::adamw);
}

// Parts of matrices on their way behind products.
TEST(Sample, MuonOfTwoRanksEqualsOne) {
  expect_training_of_one_rank(OptimizerName::muon);
}

// Second moments of rows, with their owners; of rows and columns, with sums over ranks.
TEST(Sample, NormuonOfTwoRanksEqualsOne) {
  expect_training_of_one_rank(OptimizerName::normuon);
}
TEST(Sample, AdafactorOfTwoRanksEqualsOne) {
  expect_training_of_one_rank(OptimizerName::adafactor);
}

}  // namespace
}  // namespace forge::test
