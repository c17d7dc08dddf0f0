#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "cover.hpp"
#include "layout/mesh_shape.hpp"
#include "models.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

void expect_one_rank(const std::vector<LayoutCase>& cases, std::size_t expected) {
  References references;
  EXPECT_EQ(failures_of(cases, expected, [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); }), "");
}

// Two and two of everything: axes, ZeRO, recompute, schedule, cp method, split, microbatch, model.
TEST(ManyRanks, CoveringSetEqualsOne) {
  const auto cases = covering_layouts();
  EXPECT_GE(cases.size(), 42u);  // the two factors with the most values have so many pairs
  std::int64_t most = 0;
  for (const LayoutCase& c : cases) {
    EXPECT_GE(ranks_of(c.deck.mesh), 9);
    most = std::max(most, ranks_of(c.deck.mesh));
  }
  EXPECT_EQ(most, 64);
  expect_one_rank(cases, 89);
}

// There are 5 · 15 meshes of 3 · 2^2 ranks, and 70 of 2^4: the ways to deal the prime factors to five axes.
TEST(ManyRanks, MeshesOfTwelveEqualOne) {
  expect_one_rank(thinned(drawn_layouts(12, 1), 3), part_of(75, 3));
}

TEST(ManyRanks, MeshesOfSixteenEqualOne) {
  expect_one_rank(thinned(drawn_layouts(16, 1), 3), part_of(70, 3));
}

// 32 ranks with two on each of five axes, and 64 with four on one of them.
TEST(ManyRanks, FiveAxesAtOnceEqualOne) {
  const auto models = test_models();
  MeshDeck mesh;
  mesh.pp = mesh.dp_replicate = mesh.dp_shard = mesh.cp = mesh.tp = 2;
  std::vector<LayoutCase> cases;
  std::size_t number = 0;
  for (const Choice& choice : choices_of(mesh)) {
    if (++number % 3 != 0) continue;
    const TestModel& model = models[number % models.size()];
    cases.push_back({model.name, layout_deck(model.deck, mesh, choice, number)});
  }
  for (std::int64_t MeshDeck::*wide :
       {&MeshDeck::pp, &MeshDeck::dp_replicate, &MeshDeck::dp_shard, &MeshDeck::cp, &MeshDeck::tp}) {
    MeshDeck larger = mesh;
    larger.*wide = 4;
    const auto choices = choices_of(larger);
    const TestModel& model = models[++number % models.size()];
    cases.push_back({model.name, layout_deck(model.deck, larger, choices[number * 13 % choices.size()], number)});
  }
  expect_one_rank(thinned(cases, 2), part_of(40, 2));
}

TEST(ManyRanks, SomeMeshesOfTwentyFourEqualOne) {
  expect_one_rank(thinned(drawn_layouts(24, 1), 8), part_of(175, 8));
}

}  // namespace
}  // namespace forge::test
