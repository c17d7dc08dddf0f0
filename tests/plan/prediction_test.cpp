#include "predict/prediction.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "../equivalence/models.hpp"
#include "config/schedule_name.hpp"
#include "core/to_size.hpp"
#include "predict/outcome.hpp"
#include "predict/search.hpp"
#include "predict/search_space.hpp"
#include "predict/step_cost.hpp"
#include "schedule/check_deck.hpp"
#include "schedule/csv.hpp"
#include "schedule/from_deck.hpp"

namespace forge::test {
namespace {

Deck small_deck(bool experts = false) {
  Deck deck = (experts ? moe_models() : test_models()).front().deck;
  deck.train.precision = PrecisionName::bf16;
  deck.train.head_chunk_rows = 0;
  return deck;
}

// On one rank nothing runs side by side: a step is what its tasks take, but for the host.
TEST(Prediction, OfOneRankIsTheSumOfItsTasks) {
  Machine machine = read_machine("h100_8");
  machine.host_launch = machine.step_seconds = 0;
  for (const bool experts : {false, true}) {
    Deck deck = small_deck(experts);
    check_deck(deck, 1);
    const RunSetup setup = make_setup(deck);
    const Prediction p = predict(machine, setup);
    StepCost cost(machine, setup);
    double sum = 0;
    for (const Task& task : p.tasks[0]) sum += cost(setup.share, task).total();
    EXPECT_GT(sum, 1e-4);
    EXPECT_NEAR(p.seconds, sum, 1e-9 * sum);
    EXPECT_NEAR(std::accumulate(p.part.begin(), p.part.end(), 0.0), sum, 1e-9 * sum);
    EXPECT_NEAR(p.tokens_per_second, 16 * 16 / sum, 1e-6 / sum);
    Machine slow = machine;
    slow.step_seconds = 1e-3;  // of the host: no other stage is waited for
    const Prediction late = predict(slow, setup);
    EXPECT_GT(late.waited[to_size(Lane::compute)], 0);
    EXPECT_EQ(late.waited[to_size(Lane::transfers)], 0);
  }
}

// A replayed rank's computation stands for the plan's, attention beside which keys go round included.
TEST(Prediction, MeasuredComputationTakesThePlaceOfThePlans) {
  Machine machine = read_machine("h100_8");
  machine.host_launch = machine.step_seconds = 0;
  for (const CpMethod method : {CpMethod::ring, CpMethod::all_to_all}) {
    Deck deck = small_deck();
    deck.mesh.cp = 2;
    deck.mesh.cp_method = method;
    check_deck(deck, 2);
    const RunSetup setup = make_setup(deck);
    const Prediction planned = predict(machine, setup);
    MeasuredTasks none;
    for (const Task& task : planned.tasks[0])
      none[{std::string(name_of(task.op)), subject_of(task, setup.share, setup.spec)}] = 0;
    const auto part = [](const Prediction& p, CostPart of) { return p.part[to_size(static_cast<int>(of))]; };
    double computed = 0;
    for (const CostPart of : {CostPart::products, CostPart::attention, CostPart::rows, CostPart::optimizer})
      computed += part(planned, of);
    const Prediction measured = predict(machine, setup, {&none});
    EXPECT_GT(part(planned, CostPart::attention), 0);
    EXPECT_NEAR(part(measured, CostPart::attention), 0, 1e-12);
    EXPECT_NEAR(measured.seconds, planned.seconds - computed, 0.2 * part(planned, CostPart::attention));
  }
}

// A replay has a pair of passes as one task, and the plan runs its two passes, which others measured alone.
TEST(Prediction, MeasuredPairsAreTheirPasses) {
  const Machine machine = read_machine("h100_8");
  Deck deck = small_deck();
  deck.mesh.tp = 2, deck.train.microbatch_sequences = 1;
  deck.train.overlap = Overlap::pairs;
  check_deck(deck, 2);
  const RunSetup setup = make_setup(deck);
  MeasuredTasks passes{{{"forward", "block"}, 1.0}, {{"backward", "block"}, 2.0}};
  const double seconds = predict(machine, setup, {&passes}).seconds;
  EXPECT_GE(seconds, 3.0 * 16 * static_cast<double>(deck.model.layers));
  passes[{"end_pair", ""}] = 100;
  EXPECT_EQ(predict(machine, setup, {&passes}).seconds, seconds);
}

// Products of small experts are CUTLASS's where the machine has it and nothing else is asked for.
TEST(Prediction, ExpertsTakeTheRatesOfTheirKernel) {
  Machine machine = read_machine("h200_4");
  machine.host_launch = 0;
  Deck deck = small_deck(true);
  const auto products = [&](GroupedProducts grouped) {
    check_deck(deck, 1);
    return predict(machine, make_setup(deck, 0, {.grouped = grouped})).part[0];
  };
  using enum GroupedProducts;
  const double plain = products(library);
  EXPECT_EQ(products(automatic), products(cutlass));
  EXPECT_NE(products(tensor_cores), plain);
  machine.compute[2].experts["cutlass"].rates.fill({1e9, 1e9});
  EXPECT_GT(products(automatic), 10 * products(tensor_cores));
  EXPECT_EQ(products(automatic), products(cutlass));
  EXPECT_EQ(products(library), plain);
  deck.machine.workspace_mib = 0;
  EXPECT_EQ(products(automatic), products(tensor_cores));
  deck.machine.workspace_mib = 64;
  machine.has_cutlass = false;
  EXPECT_EQ(products(automatic), products(tensor_cores));
}

// What is computed is counted by the products that one rank's layers are made of.
TEST(Prediction, CountsWhatIsExecuted) {
  const Machine machine = read_machine("h100_8");
  Deck deck = small_deck();
  deck.model.dropout = 0;
  check_deck(deck, 1);
  const Prediction plain = predict(machine, make_setup(deck));
  deck.train.recompute = Recompute::full;
  const Prediction again = predict(machine, make_setup(deck));
  EXPECT_GT(again.hfu * again.seconds, 1.2 * plain.hfu * plain.seconds);
  EXPECT_NEAR(again.mfu * again.seconds, plain.mfu * plain.seconds, 1e-12 * plain.mfu * plain.seconds);
  EXPECT_GT(again.seconds, plain.seconds);
}

// The streams run the tasks in the order of the list, which is the executor's.
TEST(Prediction, KeepsTheOrderOfTasks) {
  const Machine machine = read_machine("h100_8");
  Deck deck = small_deck();
  deck.mesh.pp = 2;
  deck.mesh.dp_shard = 4;
  deck.train.zero_stage = 3;
  deck.schedule.name = ScheduleName::interleaved;
  deck.schedule.virtual_stages = 2;
  check_deck(deck, 8);
  const Prediction p = predict(machine, make_setup(deck));
  ASSERT_EQ(p.spans.size(), 2u);
  for (std::size_t r = 0; r < 2; ++r) {
    std::array<int, lane_count> last{};
    std::array<int, lane_count> count{};
    std::array<double, lane_count> end{};
    for (const Span& span : p.spans[r]) {
      const auto lane = to_size(span.lane);
      if (span.task < 0 || span.lane == Lane::transfers) continue;  // those of a group run together
      EXPECT_GE(span.task, last[lane]);
      EXPECT_GE(span.start, end[lane] - 1e-12);
      last[lane] = span.task;
      end[lane] = span.end;
      ++count[lane];
    }
    EXPECT_GT(count[to_size(Lane::compute)], 50);
    EXPECT_GT(count[to_size(Lane::parameters)], 10);
    EXPECT_GT(count[to_size(Lane::gradients)], 5);
  }
}

// Every constant of a program changes the time of a step: of replicas of stages, or of ZeRO's shards.
TEST(Prediction, UsesEachOfAProgramsConstants) {
  const auto path = std::filesystem::temp_directory_path() / ("program_" + std::to_string(::getpid()) + ".yaml");
  Machine machine = read_machine("h100_8");
  machine.host_launch = 0;
  const auto expect_used = [&](const MeshDeck& mesh, std::int64_t zero_stage,
                               std::initializer_list<const char*> constants) {
    Deck deck = small_deck();
    deck.mesh = mesh;
    deck.train.zero_stage = zero_stage;
    check_deck(deck, static_cast<int>(mesh.pp * mesh.dp_replicate * mesh.dp_shard * mesh.tp));
    const RunSetup setup = make_setup(deck);
    const auto seconds = [&](const std::string& text) {
      std::ofstream(path) << "attention_kernel: library\n" << text;
      machine.program = read_program(path);
      return predict(machine, setup).seconds;
    };
    const double plain = seconds("");
    for (const char* constant : constants) EXPECT_NE(seconds(constant), plain) << constant;
  };
  expect_used({.pp = 2, .dp_replicate = 2, .dp_shard = 1, .tp = 2}, 0,
              {"product_share: 0.5", "attention_share: 0.5", "score_bytes: 1000", "logit_bytes: 1000",
               "row_traffic: 50", "tp_traffic: 9", "accumulate_bytes: 50000", "host_forward_us: 9000",
               "host_backward_us: 9000", "tp_wait_us: 9000", "host_collective_us: 9000", "transfer_us: 9000",
               "optimizer_bytes: 50000", "step_ms: 9", "gradients_behind: 0"});
  expect_used({.dp_shard = 8}, 3, {"shards_at_once: 1"});
  expect_used({.dp_shard = 8}, 1, {"shards_at_once: 1"});
  // Stages on two nodes of eight.
  expect_used({.pp = 2, .dp_replicate = 4, .dp_shard = 1, .tp = 2}, 0, {"host_pipeline_us: 9000"});
  std::filesystem::remove(path);
}

// A program that keeps more than forge: the fullest rank is looked for among its stages.
TEST(Prediction, MemoryOfAnotherProgram) {
  Machine machine = read_machine("h100_8");
  Deck deck = small_deck();
  deck.mesh = {.pp = 2, .dp_shard = 1};
  check_deck(deck, 2);
  const RunSetup setup = make_setup(deck);
  const Outcome plain = outcome_of(machine, setup);
  machine.program.activation_memory = 1e3;
  machine.program.gradient_memory = 3;
  const Outcome other = outcome_of(machine, setup);
  std::size_t most = 0;
  for (int p = 0; p < 2; ++p) {
    const MemoryPlan plan = planned_memory(setup, RunKind::training, p);
    std::size_t elements = 0;
    for (const LocalUnit& unit : rank_share(setup.model_share(), p).units) elements += to_size(unit.elements);
    if (plan.total() + 999 * plan.of(Category::activations) + 3 * elements <= most) continue;
    most = plan.total() + 999 * plan.of(Category::activations) + 3 * elements;
    EXPECT_GT(elements, 1000u);
  }
  EXPECT_EQ(other.memory.plan.total(), most);
  EXPECT_GT(other.memory.plan.total(), 10 * plain.memory.plan.total());
  EXPECT_EQ(other.time.seconds, plain.time.seconds);
}

Deck deck_of_experts(DispatchMethod dispatch, std::int64_t ep) {
  Deck deck = small_deck(true);
  deck.model.dispatch = dispatch;
  deck.model.dispatch_rows = 1.5;
  deck.mesh = {.dp_shard = 2, .ep = ep};
  check_deck(deck, 2);
  return deck;
}

// With imbalance the busiest rank's experts get more rows, which exchanges wait for; where all ranks have all experts,
// they are as busy. What is useful, and memory, stay.
TEST(Prediction, ImbalanceIsOfTheBusiestRanks) {
  Machine machine = read_machine("h100_8");
  machine.host_launch = 0;
  machine.in_node[to_size(Collective::all_to_all)] = {{0, 0, 1e6}};  // so slow that nothing else counts
  const auto outcome = [&](DispatchMethod dispatch, std::int64_t ep, double imbalance) {
    machine.imbalance = imbalance;
    return outcome_of(machine, deck_of_experts(dispatch, ep));
  };
  const auto ep_seconds = [](const Outcome& o) { return o.time.part[to_size(CostPart::ep)]; };
  const Outcome even = outcome(DispatchMethod::all_to_all, 2, 1), uneven = outcome(DispatchMethod::all_to_all, 2, 1.25);
  EXPECT_EQ(even.time.expert_load, 1);
  EXPECT_NEAR(uneven.time.expert_load, 1.25, 1e-12);
  EXPECT_EQ(uneven.time.expert_rounds, 1);
  EXPECT_NEAR(ep_seconds(uneven) / ep_seconds(even), 1.25, 0.01);
  EXPECT_GT(uneven.time.part[to_size(CostPart::rows)], even.time.part[to_size(CostPart::rows)]);
  EXPECT_EQ(uneven.memory.total(), even.memory.total());
  EXPECT_NEAR(uneven.time.hfu * uneven.time.seconds, even.time.hfu * even.time.seconds, 1e-9 * even.time.seconds);
  // No rank gets more than all rows.
  const Outcome most = outcome(DispatchMethod::all_to_all, 2, 100);
  EXPECT_NEAR(most.time.expert_load, 2, 1e-12);
  EXPECT_EQ(most.time.expert_rounds, 2);
  EXPECT_NEAR(ep_seconds(most) / ep_seconds(even), 2, 0.02);
  // Gathered rows go to all ranks, whatever the routers do; the products are the busiest's.
  const Outcome gathered = outcome(DispatchMethod::all_gather, 2, 1),
                busy = outcome(DispatchMethod::all_gather, 2, 1.25);
  EXPECT_EQ(ep_seconds(busy), ep_seconds(gathered));
  EXPECT_GT(busy.time.part[to_size(CostPart::rows)], gathered.time.part[to_size(CostPart::rows)]);
  EXPECT_EQ(outcome(DispatchMethod::all_to_all, 1, 100).time.seconds,
            outcome(DispatchMethod::all_to_all, 1, 1).time.seconds);
}

// Each round of an exchange has its latency, whose number is that of the rows over a round's.
TEST(Prediction, ImbalanceTakesRounds) {
  Machine machine = read_machine("h100_8");
  machine.in_node[to_size(Collective::all_to_all)] = {{1, 0, 1e15}};
  const auto seconds = [&](double imbalance) {
    machine.imbalance = imbalance;
    return predict(machine, make_setup(deck_of_experts(DispatchMethod::all_to_all, 2))).part[to_size(CostPart::ep)];
  };
  EXPECT_NEAR(seconds(1.5) / seconds(1), 1, 0.01);
  EXPECT_NEAR(seconds(1.75) / seconds(1), 2, 0.01);
}

// shards_at_once: one all-reduce of the gradients of all units and one gather of all parameters, which nothing hides.
TEST(Prediction, ShardsAtOnceAreOneSumAndOneGather) {
  Machine machine = read_machine("h100_8");
  machine.program.shards_at_once = true;
  Deck deck = small_deck();
  deck.mesh = {.dp_shard = 8};
  deck.train.zero_stage = 1;
  deck.train.accumulate = Accumulation::unsharded;
  check_deck(deck, 8);
  const RunSetup setup = make_setup(deck);
  std::int64_t elements = 0;
  for (const LocalUnit& unit : setup.share.units) elements += unit.elements;
  ASSERT_GT(setup.share.units.size(), 2u);
  const Placement node{8, 1, 8, 1};
  const double sum =
      collective_seconds(machine, {Group::gradients, Collective::all_reduce, elements, DType::f32}, node);
  const double gather =
      collective_seconds(machine, {Group::parameter_shards, Collective::all_gather, elements / 8, DType::bf16}, node);
  const Prediction p = predict(machine, setup);
  EXPECT_EQ(p.behind[to_size(Lane::gradients)] + p.behind[to_size(Lane::parameters)], 0);
  EXPECT_NEAR(p.part[to_size(CostPart::gradients)], sum, 1e-12);
  // The parts are copied to where the parameters stand, twice.
  const double copies = row_seconds(machine, 4 * 2. * static_cast<double>(elements));
  EXPECT_NEAR(p.part[to_size(CostPart::parameters)], gather + copies, 1e-12);
}

// Two actions of a rank that change places in a schedule's file change the time.
TEST(Prediction, FollowsTheSchedulesFile) {
  Machine machine = read_machine("h100_8");
  machine.host_launch = 0;
  Deck deck = small_deck();
  deck.mesh.pp = 4;
  deck.mesh.dp_shard = 1;
  check_deck(deck, 4);
  Schedule schedule = schedule_of(deck, 4, 16);
  const double before = predict(machine, make_setup(deck)).seconds;
  const auto path = std::filesystem::temp_directory_path() / ("schedule_" + std::to_string(::getpid()) + ".csv");
  const auto with_file = [&] {
    std::ofstream(path) << write_schedule_csv(schedule);
    Deck other = deck;
    other.schedule.file = path.string();
    check_deck(other, 4);
    return predict(machine, make_setup(other)).seconds;
  };
  EXPECT_NEAR(with_file(), before, 1e-12);
  // The last rank's F and B take turns; a second F before the first B delays all gradients.
  auto& last = schedule.actions[3];
  ASSERT_EQ(last[1].op, Op::backward);
  ASSERT_EQ(last[2].op, Op::forward);
  std::swap(last[1], last[2]);
  EXPECT_GT(with_file(), 1.001 * before);
  std::filesystem::remove(path);
}

TEST(Prediction, ReportsWhereTheTimeGoes) {
  const Machine machine = read_machine("h100_8_efa");
  Deck deck = small_deck();
  deck.mesh.pp = 2;
  deck.mesh.dp_shard = 8;
  deck.train.zero_stage = 3;
  check_deck(deck, 16);
  const Prediction p = predict(machine, make_setup(deck));
  double all = p.slowed;
  for (const double part : p.part) all += part;
  for (const double waited : p.waited) all += waited;
  EXPECT_NEAR(all, p.seconds, 1e-6 * p.seconds);
  EXPECT_GT(p.waited[to_size(Lane::parameters)], 0);
  EXPECT_GE(p.hidden, 0);
}

// All layouts of a small model on eight ranks, each simulated: the search, which leaves most out, finds the same best.
TEST(Search, FindsTheBestOfAll) {
  Machine machine = read_machine("h100_8_efa");
  machine.ranks_per_node = 4;
  // What `automatic` takes is fast, what it takes elsewhere slow: the search's bounds must know which it is.
  auto& of_experts = machine.compute[2].experts;
  of_experts["cutlass"] = {{1}, {{{1e15}, {1e15}, {1e15}}}};
  of_experts["tensor_cores"] = {{1}, {{{1e9}, {1e9}, {1e9}}}};
  // The last machine has a network that decides: gathers and sums share it.
  for (const auto& [experts, network] : {std::pair(false, 1.0), {true, 1.0}, {false, 1e-3}}) {
    for (NodesRates& rates : machine.between_nodes)
      for (double& bandwidth : rates.bandwidth) bandwidth *= network;
    Deck deck = small_deck(experts);
    deck.train.global_batch_sequences = 8;
    if (experts) deck.model.experts = 8;
    deck.mesh.node_ranks = 4;  // rows may go to experts on eight ranks in two hops
    check_deck(deck, 1);
    // Room for some of them only.
    std::vector<std::pair<double, std::size_t>> all;
    std::int64_t layouts = 0, illegal = 0;
    for (const MeshDeck& mesh : meshes_of(deck, 8, 4))
      for (const Choice& choice : choices_of(deck, mesh)) {
        Deck one = with_choice(deck, mesh, choice);
        ++layouts;
        try {
          check_deck(one, 8);
        } catch (const BadInput&) {
          ++illegal;
          continue;
        }
        const Outcome o = outcome_of(machine, one);
        all.emplace_back(o.time.seconds, o.memory.total());
      }
    ASSERT_GT(all.size(), 300u);
    std::vector<std::size_t> bytes;
    for (const auto& [seconds, needed] : all) bytes.push_back(needed);
    std::nth_element(bytes.begin(), bytes.begin() + 60, bytes.end());
    machine.memory_bytes = bytes[60] + context_allowance().bytes;
    std::vector<double> fitting;
    for (const auto& [seconds, needed] : all)
      if (needed <= bytes[60]) fitting.push_back(seconds);
    std::sort(fitting.begin(), fitting.end());
    ASSERT_GT(fitting.size(), 40u);
    const SearchResult found = search(machine, deck, {8, 5, 1e9});
    EXPECT_EQ(found.layouts, layouts);
    EXPECT_EQ(found.left, 0);
    EXPECT_GT(found.without_room, 100);
    ASSERT_EQ(found.best.size(), 5u);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(found.best[i].time.seconds, fitting[i], 1e-9 * fitting[i]) << i;
    EXPECT_EQ(found.without_room + found.bounded + found.simulated + found.refused, layouts);
  }
}

}  // namespace
}  // namespace forge::test
