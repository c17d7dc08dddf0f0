#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "cover.hpp"
#include "models.hpp"
#include "nn/dispatch.plan.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr int parts = 2;

std::string differences_of(const std::vector<LayoutCase>& cases, std::size_t expected) {
  References references;
  return failures_of(cases, expected, [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); });
}

class MoeLayouts : public testing::TestWithParam<int> {};

// Every mesh up to 8 ranks with every ep and etp, 272 of them, once or four times; models, ZeRO, recompute and schedule
// are drawn.
TEST_P(MoeLayouts, UpToEightRanksEqualOne) {
  const auto cases = thinned(moe_layouts(8, long_run() ? 4 : 1, parts, GetParam()), 1);
  EXPECT_EQ(differences_of(cases, part_of(long_run() ? 544 : 136, 1)), "");
}
INSTANTIATE_TEST_SUITE_P(Parts, MoeLayouts, testing::Range(0, parts));

// Every n-th of the meshes of so many ranks.
std::vector<LayoutCase> some_of(int ranks, std::size_t every, std::uint64_t key) {
  const auto all = drawn_moe_layouts(ranks, key);
  std::vector<LayoutCase> some;
  for (std::size_t i = static_cast<std::size_t>(ranks) % every; i < all.size(); i += every) some.push_back(all[i]);
  return some;
}

TEST(MoeManyRanks, MeshesOfTwelveAndSixteenEqualOne) {
  auto cases = drawn_moe_layouts(12, 1);
  const auto more = drawn_moe_layouts(16, 1);
  cases.insert(cases.end(), more.begin(), more.end());
  EXPECT_EQ(differences_of(thinned(cases, 3), part_of(75 + 70, 3)), "");
}

TEST(MoeManyRanks, SomeMeshesUpToSixtyFourEqualOne) {
  std::vector<LayoutCase> cases;
  for (const auto& [ranks, every] : {std::pair{18, 5}, {24, 8}, {32, 9}, {36, 25}, {48, 40}, {64, 40}}) {
    const auto some = some_of(ranks, static_cast<std::size_t>(every), 1);
    cases.insert(cases.end(), some.begin(), some.end());
  }
  EXPECT_EQ(differences_of(thinned(cases, 2), part_of(74, 2)), "");
}

// Ten steps: losses, norms, parameters, biases of routers by what they choose, and the validation loss after them.
TEST(MoeTenSteps, EqualOneRank) {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const LayoutCase& c : drawn_moe_layouts(ranks, 2)) cases.push_back({c.name, with_training(c.deck, 10)});
  for (const LayoutCase& c : some_of(16, 12, 2)) cases.push_back({c.name, with_training(c.deck, 10)});
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 10, 1e-9); };
  EXPECT_EQ(failures_of(thinned(cases, 3), part_of(96 + 6, 3), check), "");
}

// Products of experts that find their rows' begins in the device's memory, as tensor cores do, here in the CPU build's,
// which nobody may ask for.
constexpr KernelChoice begins_on_device{.grouped = GroupedProducts::tensor_cores};
bool reads_counts(const Deck& deck) {
  return moe_shape(make_setup(deck, 0, begins_on_device).buffers).reads_counts;
}

// Models with experts, and one that sends every token to all of them.
std::vector<TestModel> models_and_all_chosen() {
  std::vector<TestModel> models = moe_models();
  TestModel all = models.front();
  all.name = "all experts";
  all.deck.model.experts_per_token = all.deck.model.experts;
  all.deck.model.dispatch_rows = 0.7;
  models.push_back(all);
  return models;
}

// Each model on three of: one rank, stages, sequence parallelism of whole experts, context parallelism, ZeRO-3, all
// without a count on the host; and rows from other ranks, whose counts it reads. Steps, biases and validation, too.
TEST(MoeOnDevice, LayoutsEqualOneRankWithCountsOnTheHost) {
  const MeshDeck meshes[] = {{1, 1, 1, 1, 1},       {2, 1, 1, 1, 1},       {1, 1, 1, 1, 2, 1, 1}, {1, 1, 1, 2, 1, 1, 1},
                             {1, 1, 2, 1, 1, 1, 1}, {1, 1, 2, 1, 1, 2, 1}, {1, 1, 2, 1, 2, 2, 2}};
  std::vector<LayoutCase> cases;
  for (const TestModel& model : models_and_all_chosen())
    for (int draw = 0; draw < 3; ++draw) {
      const std::size_t n = cases.size();
      Choice choice;
      const MeshDeck& mesh = meshes[n % 7];
      choice.zero_stage = mesh.dp_shard > 1 ? 3 : 0;
      choice.recompute = recompute_of(n + n / 7);
      cases.push_back({model.name, with_training(layout_deck(model.deck, mesh, choice, n), 3)});
    }
  References references;
  const auto check = [&](const LayoutCase& c) -> std::string {
    Deck deck = c.deck;
    if (const auto rule = illegality(deck); !rule.empty()) return "is refused: " + rule;
    const LayoutResult& one = references.of(deck, 3);
    if (reads_counts(deck) != (deck.mesh.ep * deck.mesh.etp > 1)) return "reads counts, or reads none";
    RunOptions options;
    options.train_steps = 3;
    options.whole = false;
    options.one = &one;
    options.kernels = begins_on_device;
    const LayoutResult result = run_threads(deck, options);
    const auto text = difference(result, one, 1);
    return text.empty() ? training_difference(result, one, 1e-9) : text;
  };
  EXPECT_EQ(failures_of(cases, 36, check), "");
}

// Nothing but the host's knowledge changes, so no bit does, in any precision; in FP8 with a capacity it is read after
// all, as magnitudes of rows that no expert has would count.
TEST(MoeOnDevice, OneRankHasTheBitsOfCountsOnTheHost) {
  int without_counts = 0, runs = 0;
  for (const TestModel& model : models_and_all_chosen())
    for (const auto precision : {PrecisionName::fp64, PrecisionName::fp32, PrecisionName::bf16, PrecisionName::fp8}) {
      Deck deck = one_rank(model.deck);
      deck.model.layers = 3;
      deck.train.recompute = recompute_of(runs);
      deck.train.precision = precision;
      if (precision == PrecisionName::fp8) {
        deck.train.fp8_carrier = Fp8Carrier::fp64;
        deck.train.fp8_recipe = static_cast<Fp8Recipe>(runs / 4 % 4);
        deck.train.fp8_experts = true;
        deck.train.fp8_dispatch = runs % 8 == 3;
      }
      ASSERT_EQ(illegality(deck), "") << model.name;
      const LayoutResult host = run_threads(deck, {}), device = run_threads(deck, {.kernels = begins_on_device});
      EXPECT_EQ(host.problem + device.problem, "") << model.name;
      EXPECT_EQ(host.loss, device.loss) << model.name;
      EXPECT_EQ(host.grad_norm, device.grad_norm) << model.name;
      EXPECT_EQ(host.gradients, device.gradients) << model.name;
      EXPECT_EQ(host.amaxes, device.amaxes) << model.name;
      without_counts += !reads_counts(deck);
      ++runs;
    }
  EXPECT_EQ(runs, 48);
  EXPECT_EQ(without_counts, 45);  // three models have a capacity
}

}  // namespace
}  // namespace forge::test
