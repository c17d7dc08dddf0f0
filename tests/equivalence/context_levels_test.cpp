#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "cover.hpp"
#include "in_pairs.hpp"
#include "models.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

// Two levels of cp: 2 x 2, 2 x 4 and 4 x 2, beside tp, stages, replicas, experts on all of them, and shards.
const MeshDeck meshes[] = {
    {.dp_shard = 1, .cp = 4, .cp_inner = 2},
    {.dp_shard = 1, .cp = 8, .cp_inner = 2},
    {.dp_shard = 1, .cp = 8, .cp_inner = 4},
    {.dp_shard = 1, .cp = 4, .tp = 2, .cp_inner = 2},
    {.pp = 2, .dp_shard = 1, .cp = 4, .cp_inner = 2},
    {.dp_replicate = 2, .dp_shard = 1, .cp = 4, .cp_inner = 2},
    {.dp_shard = 2, .cp = 4, .ep = 2, .etp = 1, .cp_inner = 2},
};

Deck on_levels(const TestModel& model, const MeshDeck& mesh, std::size_t n) {
  Choice choice;
  choice.zero_stage = static_cast<int>(n % 4);
  choice.recompute = recompute_of(n / 2);
  Deck deck = layout_deck(model.deck, mesh, choice, n);
  deck.mesh.cp_method = CpMethod::two_level;
  deck.mesh.cp_inner = mesh.cp_inner;
  if (deck.model.experts == 0) deck.mesh.ep = 1, deck.mesh.etp = 0;
  fit_model(deck);
  return deck;
}

std::vector<LayoutCase> cases_of(const std::vector<TestModel>& models) {
  std::vector<LayoutCase> cases;
  for (const TestModel& model : models)
    for (const MeshDeck& mesh : meshes) cases.push_back({model.name, on_levels(model, mesh, cases.size())});
  return cases;
}

std::vector<TestModel> models_of_levels() {
  std::vector<TestModel> models = test_models();
  for (const TestModel& model : moe_models())
    if (model.name == "mixtral" || model.name == "deepseek" || model.name == "biased experts") models.push_back(model);
  return models;
}

// Windows, documents, sinks, soft caps, dropout, latents, shared key heads: all models, on each of the meshes.
TEST(ContextLevels, LayoutsEqualOneRank) {
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); };
  EXPECT_EQ(failures_of(cases_of(models_of_levels()), 77, check), "");
}

TEST(ContextLevels, TrainingsEqualOneRanks) {
  References references;
  std::vector<LayoutCase> cases;
  for (const LayoutCase& c : thinned(cases_of(models_of_levels()), 5))
    cases.push_back({c.name, with_training(c.deck, 2)});
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 2, 1e-9); };
  EXPECT_EQ(failures_of(cases, cases.size(), check), "");
}

// Two passes at once, whose exchanges of heads take turns while keys go round.
TEST(ContextLevels, PairsGiveTheBitsOfPassesAlone) {
  std::vector<LayoutCase> cases;
  for (const LayoutCase& c : thinned(cases_of(models_of_levels()), 7))
    cases.push_back({c.name, with_training(in_pairs(c.deck), 2)});
  EXPECT_EQ(failures_of(cases, cases.size(), [](const LayoutCase& c) { return equals_passes_alone(c.deck); }), "");
}

// Every collective, kernel over rows and attention in the order of the plan, in each precision.
TEST(ContextLevels, RunsAsListed) {
  int runs = 0;
  for (const MeshDeck& mesh : meshes)
    for (const PrecisionName precision : {PrecisionName::fp64, PrecisionName::fp32, PrecisionName::bf16}) {
      if (mesh.pp > 1 || mesh.ep > 1) continue;
      Deck deck = on_levels(test_models()[static_cast<std::size_t>(runs) % 4], mesh, 0);
      deck.data.document_end_token = -1;
      deck.train.precision = precision;
      deck.train.microbatch_sequences = 1 + runs % 2;
      deck.train.recompute = recompute_of(static_cast<std::size_t>(runs));
      ASSERT_EQ(illegality(deck), "") << text_of(deck);
      EXPECT_EQ(run_threads(deck, {.whole = false, .alike = true}).problem, "") << text_of(deck);
      ++runs;
    }
  EXPECT_EQ(runs, 15);
}

}  // namespace
}  // namespace forge::test
