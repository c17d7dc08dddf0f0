#include <gtest/gtest.h>

#include <map>

#include "comm/thread_communicator.hpp"
#include "enumerate.hpp"
#include "layout/mesh_shape.hpp"
#include "layout_run.hpp"
#include "models.hpp"

namespace forge::test {
namespace {

LayoutResult run_threads(const Deck& deck, std::int64_t train_steps) {
  LayoutResult first;
  std::vector<std::string> problems(static_cast<std::size_t>(ranks_of(deck.mesh)));
  run_ranks(static_cast<int>(ranks_of(deck.mesh)), [&](Communicator& world) {
    LayoutResult result = run_layout(world.duplicate(), deck, train_steps);
    problems[static_cast<std::size_t>(world.rank())] = result.problem;
    if (world.rank() == 0) first = std::move(result);
  });
  for (std::size_t r = 0; r < problems.size(); ++r)
    if (!problems[r].empty()) first.problem = "rank " + std::to_string(r) + ": " + problems[r];
  return first;
}

// One rank's result of a model, computed once.
class References {
 public:
  const LayoutResult& of(const TestModel& model, std::int64_t train_steps) {
    auto& result = results_[{model.name, train_steps}];
    if (result.gradients.empty()) {
      Deck deck = model.deck;
      deck.mesh = MeshDeck{};
      deck.mesh.dp_shard = 1;
      deck.train.steps = std::max<std::int64_t>(train_steps, 1);
      EXPECT_TRUE(is_legal(deck)) << model.name;
      result = run_threads(deck, train_steps);
      EXPECT_EQ(result.problem, "") << model.name << " on one rank";
    }
    return result;
  }

 private:
  std::map<std::pair<std::string, std::int64_t>, LayoutResult> results_;
};

constexpr int parts = 4;  // of the enumeration, so that they run side by side

class Layouts : public testing::TestWithParam<int> {};

// Every mesh up to 8 ranks with every ZeRO stage, accumulation, recompute policy and schedule; models take turns.
TEST_P(Layouts, UpToEightRanksEqualOne) {
  const auto models = test_models();
  References references;
  std::size_t number = 0;
  int run = 0;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const MeshDeck& mesh : meshes_of(ranks))
      for (const Choice& choice : choices_of(mesh)) {
        ++number;
        if (static_cast<int>(number % parts) != GetParam()) continue;
        const TestModel& model = models[(number / parts + number / 7) % models.size()];
        Deck deck = layout_deck(model.deck, mesh, choice, number / parts);
        if (!is_legal(deck)) continue;
        ++run;
        const std::string wrong = difference(run_threads(deck, 0), references.of(model, 0), 1);
        ASSERT_EQ(wrong, "") << model.name << ", layout " << number << ": " << text_of(deck);
      }
  std::printf("%d layouts\n", run);
  EXPECT_GE(run, 800);
}
INSTANTIATE_TEST_SUITE_P(Parts, Layouts, testing::Range(0, parts));

}  // namespace
}  // namespace forge::test
