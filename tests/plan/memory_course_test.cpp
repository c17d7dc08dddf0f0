#include "plan/memory_course.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "../equivalence/models.hpp"
#include "config/optimizer_table.hpp"
#include "config/schedule_name.hpp"
#include "plan/rank_memory.hpp"
#include "schedule/check_deck.hpp"

// What a drawing says of each task is the plan that the arena is held to.

namespace forge::test {
namespace {

void expect_plan(Deck deck, int ranks) {
  check_deck(deck, ranks);
  const RunSetup setup = make_setup(deck);
  for (int p = 0; p < setup.mesh.pp; ++p) {
    const RunSetup stage = setup_of_stage(setup, p);
    const MemoryPlan plan = planned_memory(setup, RunKind::training, p);
    const MemoryCourse course = memory_course(stage);
    ASSERT_EQ(course.used.size(), course.tasks.size());
    ASSERT_EQ(course.idle.size(), course.tasks.size());
    std::size_t most = 0, least_idle = course.idle.front();
    for (std::size_t t = 0; t < course.tasks.size(); ++t) {
      most = std::max(most, course.bytes(t));
      least_idle = std::min(least_idle, course.idle[t]);
      for (std::size_t c = 0; c < course.used[t].size(); ++c) EXPECT_LE(course.used[t][c], plan.bytes[c]) << t;
    }
    EXPECT_EQ(most, plan.total()) << "pp rank " << p;
    EXPECT_EQ(course.bytes(course.peak), plan.total());
    EXPECT_EQ(phase_of(course.tasks[course.peak], stage.share), plan.peak);
    // Whatever the slots hold is gone behind the last pass.
    EXPECT_GT(course.idle.back(), least_idle);
  }
}

TEST(MemoryCourse, IsFullestAsPlanned) {
  for (const TestModel& model : test_models()) {
    Deck deck = model.deck;
    expect_plan(deck, 1);
    deck.train.recompute = Recompute::full;
    deck.mesh.pp = 2;
    expect_plan(deck, 2);
    deck.schedule.name = ScheduleName::zero_bubble;
    deck.train.recompute = Recompute::selective;
    deck.mesh.dp_shard = 2;
    deck.train.zero_stage = 3;
    expect_plan(deck, 4);
  }
}

TEST(MemoryCourse, HasTheFramesOfUpdates) {
  Deck deck = test_models().front().deck;
  deck.optimizer.name = OptimizerName::muon;
  expect_plan(deck, 1);
}

// Slots hold something while layers compute, and nothing around the passes.
TEST(MemoryCourse, KnowsWhenSlotsAreEmpty) {
  Deck deck = test_models().front().deck;
  check_deck(deck, 1);
  const MemoryCourse course = memory_course(make_setup(deck));
  for (std::size_t t = 0; t < course.tasks.size(); ++t) {
    const Task& task = course.tasks[t];
    const bool passes = task.op == TaskOp::forward || task.op == TaskOp::backward_input;
    EXPECT_TRUE(!passes || course.idle[t] < course.idle.back()) << t;
    EXPECT_TRUE(!task.of_step() || course.used[t][to_size(Category::activations)] == 0) << t;
  }
}

}  // namespace
}  // namespace forge::test
