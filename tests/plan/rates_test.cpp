#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "../equivalence/models.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "predict/outcome.hpp"
#include "predict/step_cost.hpp"
#include "schedule/check_deck.hpp"

namespace forge::test {
namespace {

const AttentionWork of_128{1e12, 4096, 128, false};

AttentionWork of_columns(double columns, bool backward) {
  AttentionWork work = of_128;
  work.columns = columns;
  work.backward = backward;
  return work;
}

double seconds_on(const Machine& machine, const AttentionWork& work) {
  return attention_seconds(machine, DType::bf16, "tensor_cores", work) - machine.row_launch;
}

// Heads of 64 columns take 1.57 times as long forward on an H100; between measured sizes the rate is interpolated.
TEST(Rates, AttentionOfOtherHeadsHasAFractionOfTheRates) {
  const Machine m = read_machine("h100_8");
  EXPECT_NEAR(seconds_on(m, of_columns(64, false)) / seconds_on(m, of_128), 1 / 0.637, 1e-9);
  EXPECT_NEAR(seconds_on(m, of_columns(160, true)) / seconds_on(m, of_columns(128, true)), 1 / 0.88, 1e-9);
  const double between = seconds_on(m, of_columns(90.50966799187809, true));
  EXPECT_NEAR(between / seconds_on(m, of_columns(128, true)), 1 / std::sqrt(0.771), 1e-9);
  EXPECT_EQ(seconds_on(m, of_columns(32, false)), seconds_on(m, of_columns(64, false)));
  const Machine processors = read_machine("a100_8");  // has no such fractions
  EXPECT_EQ(seconds_on(processors, of_columns(64, true)), seconds_on(processors, of_columns(128, true)));
}

// Products and attention of a step that reaches more of the peak than the limit of power allows take longer, no other
// part does; a step that reaches less stays.
TEST(Rates, LowersTheClockOfStepsNearThePeak) {
  Machine m = read_machine("h100_8");
  m.host_launch = m.step_seconds = 0;
  Deck deck = test_models().front().deck;
  deck.train.precision = PrecisionName::bf16;
  deck.train.head_chunk_rows = 0;
  check_deck(deck, 1);
  const RunSetup setup = make_setup(deck);
  const PowerLimit shipped = m.power;
  ASSERT_FALSE(shipped.clocks.empty());
  const Prediction plain = predict(m, setup);
  EXPECT_EQ(plain.clock, 1);
  m.power = {{0.5 * plain.hfu, 0.8 * plain.hfu}, {1, 0.5}};
  const Prediction limited = predict(m, setup);
  EXPECT_EQ(limited.clock, 0.5);
  for (int i = 0; i < cost_part_count; ++i) {
    const auto part = to_size(i);
    const bool slower = part == to_size(CostPart::products) || part == to_size(CostPart::attention);
    if (part == to_size(CostPart::attention))  // most of it are launches
      EXPECT_GT(limited.part[part], plain.part[part]);
    else
      EXPECT_NEAR(limited.part[part], (slower ? 2 : 1) * plain.part[part], 1e-12);
  }
  EXPECT_GT(limited.seconds, plain.seconds);
  m.program.name = "other";  // whose rates are fitted to its steps
  EXPECT_EQ(predict(m, setup).clock, 1);
}

// Beside its collectives a sum in two levels rounds the nodes' parts and adds them: it moves 8 n + 6
// bytes for a number of the rank's part in bf16 and fp32: with n nodes 6 n to round, 2 (n - 1) + 8 to add.
TEST(Rates, SumsInTwoLevelsRoundAndAddParts) {
  const Machine m = read_machine("h100_8");
  Deck deck = test_models().front().deck;
  deck.train.precision = PrecisionName::bf16;
  deck.train.head_chunk_rows = 0;
  deck.mesh.dp_shard = 8;
  deck.mesh.node_ranks = 2;
  deck.train.zero_stage = 2;
  const auto seconds = [&](ReductionLevels levels) {
    Deck one = deck;
    one.train.reduction = levels;
    check_deck(one, 8);
    const RunSetup setup = make_setup(one);
    StepCost cost(m, setup);
    double sum = 0, collectives = 0, numbers = 0;
    for (const Task& task : step_tasks(setup.share, setup.schedule, setup.buffers.recompute))
      if (task.op == TaskOp::reduce_gradients) {
        TaskCost of_task = cost(setup.share, task);
        sum += of_task.of(CostPart::gradients);
        for (const Wire& wire : *of_task.wires) collectives += wire.latency + wire.seconds;
        numbers += static_cast<double>(setup.share.units[task.unit].shard().size());
      }
    return std::pair(sum - collectives, numbers);
  };
  const auto [one_level, numbers] = seconds(ReductionLevels::one_level);
  const double more = seconds(ReductionLevels::two_level).first - one_level;
  EXPECT_GT(numbers, 1000);
  const double bytes = (4 * 6 + 3 * 2 + 8) * numbers;
  EXPECT_GT(more, bytes / (m.memory_bandwidth * m.row_fraction));
  EXPECT_LT(more, bytes / (m.memory_bandwidth * m.row_fraction) + 100 * m.row_launch);
}

TEST(Rates, WrongFilesAreRefused) {
  const auto error_of = [](const std::string& compute) {
    const auto path = std::filesystem::temp_directory_path() / ("power_" + std::to_string(::getpid()) + ".yaml");
    std::ofstream(path) << "like: h100_8\ncompute: {" << compute << "}\n";
    std::string error = "none";
    try {
      read_machine(path.string());
    } catch (const BadInput& e) {
      error = e.what();
    }
    std::filesystem::remove(path);
    return error;
  };
  EXPECT_EQ(error_of("power: {share: [0.4, 0.6], clock: [1, 0.9]}"), "none");
  EXPECT_NE(error_of("power: {share: [0.4]}").find("compute.power: must have as many clocks as shares"),
            std::string::npos);
  EXPECT_NE(error_of("power: {share: [0.6, 0.4], clock: [1, 0.9]}").find("compute.power.share must ascend"),
            std::string::npos);
  EXPECT_NE(error_of("power: {clock: [1, 1.1]}").find("clock: legal: numbers of at most 1"), std::string::npos);
  EXPECT_NE(error_of("bf16: {attention: {cudnn: {head_columns: [64]}}}")
                .find("must have as many forward_share and backward_share as head_columns"),
            std::string::npos);
}

}  // namespace
}  // namespace forge::test
