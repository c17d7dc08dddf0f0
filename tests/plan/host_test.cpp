#include <gtest/gtest.h>

#include <algorithm>

#include "../equivalence/models.hpp"
#include "predict/prediction.hpp"
#include "predict/step_cost.hpp"
#include "schedule/check_deck.hpp"

// What hosts take of a predicted step.

namespace forge::test {
namespace {

Deck small_deck() {
  Deck deck = test_models().front().deck;
  deck.train.precision = PrecisionName::bf16;
  return deck;
}

// The host knows the scalars before it gives out the update, behind which it prepares the next step; another program's
// waits for the update.
TEST(Prediction, TheHostPreparesStepsBehindTheUpdate) {
  Machine machine = read_machine("h100_8");
  machine.host_launch = 0;
  Deck deck = small_deck();
  check_deck(deck, 1);
  const auto seconds = [&](double of_host, const char* program) {
    machine.step_seconds = of_host;
    machine.program.name = program;
    return predict(machine, make_setup(deck)).seconds;
  };
  const double least = seconds(0, "forge"), update = 1e-6;  // of a hundred thousand weights, at the least
  EXPECT_DOUBLE_EQ(seconds(update, "forge"), least);
  EXPECT_NEAR(seconds(update, "another"), seconds(0, "another") + update, 1e-12);
  EXPECT_GT(seconds(1, "forge"), 1);
  EXPECT_LT(seconds(1, "forge"), 1 + least);
}

// Hosts of a tensor-parallel group take host_pipeline_us for each of its ranks, where stages are on several nodes
// alone.
TEST(Prediction, HostsWaitInPipelinesOverNodes) {
  Machine machine = read_machine("h100_8");
  machine.host_launch = 0;
  const auto host = [&](int replicas, double pipeline) {
    machine.program.host_pipeline = pipeline;
    Deck deck = small_deck();
    deck.mesh = {.pp = 2, .dp_replicate = replicas, .dp_shard = 1, .tp = 2};
    check_deck(deck, 4 * replicas);
    const RunSetup setup = make_setup(deck);
    StepCost cost(machine, setup);
    double most = 0;
    for (const Task& task : step_tasks(setup.share, setup.schedule, setup.buffers.recompute))
      if (task.op == TaskOp::forward) most = std::max(most, cost(setup.share, task).host);
    return most;
  };
  EXPECT_EQ(host(1, 1), 0);
  EXPECT_EQ(host(4, 0), 0);
  EXPECT_NEAR(host(4, 1), 2 * 4, 1e-9);  // two gathers and two sums of a block's forward pass, of two ranks
}

}  // namespace
}  // namespace forge::test
