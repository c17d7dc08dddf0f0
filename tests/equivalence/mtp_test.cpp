#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "config/schedule_name.hpp"
#include "core/random.hpp"
#include "cover.hpp"
#include "enumerate.hpp"
#include "models.hpp"
#include "run_threads.hpp"

// Multi-token prediction on any layout equals one rank: the token table and the output matrix have further uses, on
// another stage than the embedding's.

namespace forge::test {
namespace {

std::string differences_of(const std::vector<LayoutCase>& cases, std::size_t expected) {
  References references;
  return failures_of(cases, expected, [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); });
}

// All layers on the first stage, and every way to have the depths on the stages.
std::vector<std::string> placements(const Deck& deck) {
  const std::int64_t stages =
      deck.mesh.pp * (deck.schedule.name == ScheduleName::zb_v ? 2 : deck.schedule.virtual_stages);
  std::vector<std::string> all;
  const auto place = [&](const auto& self, const std::string& text, std::int64_t stage, std::int64_t left) -> void {
    if (left > 0) self(self, text + "m", stage, left - 1);
    if (stage + 1 < stages) self(self, text + "|", stage + 1, left);
    if (left == 0 && stage + 1 == stages) all.push_back(text + "L");
  };
  place(place, "Et*" + std::to_string(deck.model.layers), 0, deck.model.mtp_depth);
  return all;
}

// For mutations/run.sh: quick_test.cpp.
TEST(Quick, MultiTokenPredictionEqualsOneRank) {
  std::vector<LayoutCase> cases;
  for (const int ranks : {2, 3, 4, 8}) {
    const auto list = drawn_mtp_layouts(ranks, 1, 2);
    cases.insert(cases.end(), list.begin(), list.end());
  }
  EXPECT_EQ(differences_of(cases, 3 + 3 + 8 + 18), "");
}

// The same with two depths on every combination of three stages: 6 each.
TEST(Quick, DepthsOnAnyStage) {
  const auto models = mtp_models();
  std::vector<LayoutCase> cases;
  for (const std::size_t m : {std::size_t{1}, std::size_t{4}}) {
    MeshDeck mesh;
    mesh.pp = 3;
    mesh.dp_shard = 1;
    Deck deck = layout_deck(models[m].deck, mesh, {}, 0);
    for (const std::string& split : placements(deck)) {
      deck.schedule.split = split;
      cases.push_back({models[m].name, deck});
    }
  }
  EXPECT_EQ(differences_of(cases, 6 + 6), "");
}

class MtpLayouts : public testing::TestWithParam<int> {};

TEST_P(MtpLayouts, UpToEightRanksEqualOne) {
  constexpr std::size_t meshes[] = {1, 5, 5, 15, 5, 25, 5, 35};
  const int draws = long_run() ? 2 : 1;
  const std::size_t all = meshes[GetParam() - 1] * static_cast<std::size_t>(draws);
  EXPECT_EQ(differences_of(thinned(drawn_mtp_layouts(GetParam(), draws), 1), part_of(all, 1)), "");
}
INSTANTIATE_TEST_SUITE_P(Ranks, MtpLayouts, testing::Range(1, 9));

TEST(MtpManyRanks, SomeOfTwelveAndSixteen) {
  EXPECT_EQ(differences_of(thinned(drawn_mtp_layouts(12, 1, 7), 1), part_of(11, 1)), "");
  EXPECT_EQ(differences_of(thinned(drawn_mtp_layouts(16, 1, 9), 1), part_of(8, 1)), "");
}

// Every schedule, with all layers on the first stage and the depths on any: with them, on stages of their own, apart
// from each other, or with the head.
TEST(MtpSchedules, EveryModelOnTwoAndThreeStages) {
  std::vector<LayoutCase> cases;
  for (const TestModel& model : mtp_models())
    for (const std::int64_t pp : {2, 3})
      for (const auto& [name, chunks] : {std::pair{ScheduleName::gpipe, 1},
                                         {ScheduleName::one_f_one_b, 1},
                                         {ScheduleName::interleaved, 2},
                                         {ScheduleName::zero_bubble, 1},
                                         {ScheduleName::zb_v, 1}}) {
        MeshDeck mesh;
        mesh.pp = pp;
        mesh.dp_shard = 1;
        Choice choice;
        choice.schedule = name;
        choice.chunks = chunks;
        Deck deck = layout_deck(model.deck, mesh, choice, 0);
        for (const std::string& split : placements(deck)) {
          deck.schedule.split = split;
          cases.push_back({model.name, deck});
        }
      }
  // Of s stages, one depth has s places and two have s (s + 1) / 2; two schedules have twice the stages.
  constexpr std::size_t one = 3 * 2 + 2 * 4 + 3 * 3 + 2 * 6, two = 3 * 3 + 2 * 10 + 3 * 6 + 2 * 21;
  static_assert(3 * one + 3 * two == 372);
  EXPECT_EQ(differences_of(thinned(cases, 3), part_of(372, 3)), "");
}

TEST(MtpTenSteps, LossesNormsParametersAndValidationEqualOneRanks) {
  References references;
  std::vector<LayoutCase> cases;
  for (const int ranks : {2, 4, 6})
    for (const LayoutCase& c : drawn_mtp_layouts(ranks, 1)) {
      cases.push_back({c.name, with_training(c.deck, 10)});
      if (c.deck.mesh.pp == 1) continue;
      cases.push_back(cases.back());
      cases.back().deck.schedule.split = split_string(c.deck, mix(71, cases.size()));
    }
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 10, 1e-9); };
  EXPECT_EQ(failures_of(thinned(cases, 2), part_of(45 + 15, 2), check), "");
}

// The loss of the depths is a part of the total loss, by its factor and the mean over depths; with the factor 0 the
// model trains as one without.
TEST(MtpLoss, TotalLossHasItsShare) {
  for (const TestModel& model : mtp_models()) {
    Deck deck = one_rank(model.deck), none = deck, twice = deck;
    none.model.mtp_loss_factor = 0;
    twice.model.mtp_loss_factor *= 2;
    std::vector<LayoutResult> results;
    for (Deck* d : {&none, &deck, &twice}) {
      ASSERT_EQ(illegality(*d), "");
      results.push_back(run_threads(*d, {}));
      EXPECT_EQ(results.back().problem, "") << model.name;
      EXPECT_EQ(results.back().loss, results.front().loss) << model.name;
    }
    const double once = results[1].total_loss - results[0].total_loss;
    EXPECT_GT(once, 0.5 * deck.model.mtp_loss_factor) << model.name;
    EXPECT_NEAR(results[2].total_loss - results[0].total_loss, 2 * once, 1e-13) << model.name;
  }
}

}  // namespace
}  // namespace forge::test
