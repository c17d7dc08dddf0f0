#include <gtest/gtest.h>

#include "core/random.hpp"
#include "enumerate.hpp"
#include "models.hpp"
#include "run_threads.hpp"

// Multi-token prediction on any layout equals one rank: the token table and the output matrix have further uses, on
// another stage than the embedding's.

namespace forge::test {
namespace {

// Letters for the depths, before the head, in a layout that is written out.
std::string with_depths(const std::string& split, std::int64_t depth) {
  if (split.find('E') == std::string::npos) return split;
  return split.substr(0, split.size() - 1) + std::string(static_cast<std::size_t>(depth), 'm') + "L";
}

// A mesh with a drawn model, ep and etp, and all else.
LayoutCase drawn(const MeshDeck& mesh, std::uint64_t key) {
  const auto models = mtp_models();
  const TestModel& model = models[mix(key, 0) % models.size()];
  MeshDeck chosen = mesh;
  if (model.deck.model.experts > 0)
    if (const auto meshes = expert_meshes(model.deck, mesh); !meshes.empty())
      chosen = meshes[mix(key, 1) % meshes.size()];
  const auto choices = choices_of(mesh);
  Deck deck = layout_deck(model.deck, chosen, choices[mix(key, 2) % choices.size()], mix(key, 3) % 60);
  deck.schedule.split = with_depths(deck.schedule.split, deck.model.mtp_depth);
  return {model.name, deck};
}

// Of all meshes of so many ranks, every `stride`-th, each with `draws` draws.
std::vector<LayoutCase> drawn_mtp_layouts(int ranks, int draws, std::size_t stride = 1) {
  std::vector<LayoutCase> cases;
  const auto meshes = meshes_of(ranks);
  for (std::size_t i = 0; i < meshes.size(); i += stride)
    for (int draw = 0; draw < draws; ++draw)
      cases.push_back(
          drawn(meshes[i], mix(61, (i * 64 + static_cast<std::size_t>(draw)) * 64 + static_cast<std::size_t>(ranks))));
  return cases;
}

std::string differences_of(const std::vector<LayoutCase>& cases) {
  References references;
  return failures_of(cases, [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); });
}

// For mutations/run.sh: quick_test.cpp.
TEST(Quick, MultiTokenPredictionEqualsOneRank) {
  std::vector<LayoutCase> cases;
  for (const int ranks : {2, 3, 4, 8}) {
    const auto list = drawn_mtp_layouts(ranks, 1, 2);
    cases.insert(cases.end(), list.begin(), list.end());
  }
  EXPECT_EQ(differences_of(cases), "");
}

class MtpLayouts : public testing::TestWithParam<int> {};

TEST_P(MtpLayouts, UpToEightRanksEqualOne) {
  EXPECT_EQ(differences_of(drawn_mtp_layouts(GetParam(), 2)), "");
}
INSTANTIATE_TEST_SUITE_P(Ranks, MtpLayouts, testing::Range(1, 9));

TEST(MtpManyRanks, SomeOfTwelveAndSixteen) {
  EXPECT_EQ(differences_of(drawn_mtp_layouts(12, 1, 7)), "");
  EXPECT_EQ(differences_of(drawn_mtp_layouts(16, 1, 9)), "");
}

// Every schedule, with the depths on the head's stage and nothing else there, or with the head's layers.
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
        const std::int64_t stages = pp * (name == ScheduleName::zb_v ? 2 : chunks);
        deck.schedule.split = "Et*5" + std::string(static_cast<std::size_t>(stages - 1), '|') +
                              std::string(static_cast<std::size_t>(deck.model.mtp_depth), 'm') + "L";
        cases.push_back({model.name, deck});
      }
  EXPECT_EQ(differences_of(cases), "");
}

TEST(MtpTenSteps, LossesNormsAndParametersOfTrainingEqualOneRanks) {
  References references;
  std::vector<LayoutCase> cases;
  for (const int ranks : {2, 4, 6})
    for (LayoutCase c : drawn_mtp_layouts(ranks, 1)) {
      c.deck.train.steps = 10;
      c.deck.optimizer.warmup_steps = 3;
      cases.push_back(c);
    }
  EXPECT_EQ(failures_of(cases, [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 10, 1e-9); }), "");
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
