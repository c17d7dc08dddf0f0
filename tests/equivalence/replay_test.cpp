#include "train/replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "../device_values.hpp"
#include "comm/thread_communicator.hpp"
#include "config/fp8_recipe.hpp"
#include "config/optimizer_table.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "enumerate.hpp"
#include "layout_run.hpp"
#include "models.hpp"
#include "operation_record.hpp"
#include "plan/rank_memory.hpp"
#include "plan/task_segments.hpp"
#include "plan/traffic.hpp"
#include "predict/machine.hpp"
#include "timeline_problem.hpp"
#include "train/batch_feed.hpp"

namespace forge::test {
namespace {

const TestModel& model_of(const std::vector<TestModel>& models, const std::string& name) {
  for (const TestModel& model : models)
    if (model.name == name) return model;
  throw Error("no model " + name);
}

// On this mesh with this stage of ZeRO, with twice as many microbatches as stages, and routers that load all experts
// alike.
Deck on_mesh(Deck deck, const MeshDeck& mesh, std::int64_t zero_stage, std::int64_t experts = 0) {
  deck.mesh = mesh;
  deck.train.zero_stage = zero_stage;
  deck.model.layers = std::max<std::int64_t>(6, mesh.pp + 1);
  deck.train.global_batch_sequences = 2 * mesh.pp * mesh.dp_replicate * mesh.dp_shard;
  deck.train.sequence_tokens = 96;
  deck.data.document_end_token = -1;
  if (experts > 0) {
    deck.model.experts = experts;
    deck.model.router_groups = deck.model.router_groups_used = 1;
    deck.model.forced_balance = true;
    deck.model.dispatch_rows = 1.5;
  }
  EXPECT_EQ(illegality(deck), "");
  return deck;
}

// pp, dp_replicate, dp_shard, cp, tp, ep, etp.
std::vector<LayoutCase> layouts_of_a_thousand() {
  const auto dense = test_models(), experts = moe_models();
  std::vector<LayoutCase> cases;
  const auto dense_model = [&](const char* name) {
    Deck deck = model_of(dense, name).deck;
    deck.train.recompute = cases.empty() ? Recompute::full : Recompute::none;
    deck.schedule.name = cases.size() == 2 ? ScheduleName::zero_bubble : ScheduleName::one_f_one_b;
    return deck;
  };
  cases.push_back({"dense, ZeRO 3", on_mesh(dense_model("llama"), {4, 2, 16, 2, 4, 1, 0}, 3)});
  cases.push_back({"dense, 1,024 shards, ZeRO 1", on_mesh(dense_model("qwen3"), {1, 1, 1024, 1, 1, 1, 0}, 1)});
  cases.push_back({"latent attention", on_mesh(dense_model("latent"), {16, 4, 4, 1, 4, 1, 0}, 2)});
  cases.push_back({"experts with etp", on_mesh(model_of(experts, "mixtral").deck, {2, 1, 128, 1, 4, 16, 4}, 3, 16)});
  Deck deepseek = model_of(experts, "deepseek").deck;
  deepseek.train.recompute = Recompute::latent;
  cases.push_back({"latent attention with experts", on_mesh(deepseek, {16, 1, 32, 1, 2, 32, 1}, 1, 32)});
  return cases;
}

// Weights gathered as codes of FP8, with shards of 1/2 and 1/4; experts' with scales of other steps.
std::vector<LayoutCase> layouts_of_codes() {
  const auto coded = [](Deck deck, Fp8Recipe recipe) {
    deck.train.precision = PrecisionName::fp8;
    deck.train.fp8_recipe = recipe;
    deck.train.fp8_carrier = Fp8Carrier::fp64;
    deck.train.fp8_gather = true;
    deck.train.fp8_experts = deck.model.experts > 0;
    if (recipe == Fp8Recipe::delayed) deck.train.fp8_history = 3;
    return deck;
  };
  const Deck dense = coded(test_models()[0].deck, Fp8Recipe::block);
  const Deck experts = coded(moe_models()[0].deck, Fp8Recipe::delayed);
  return {{"codes", on_mesh(dense, {3, 1, 2, 1, 2, 1, 0}, 3)},
          {"codes of experts", on_mesh(experts, {1, 1, 4, 1, 1, 2, 1}, 3, 6)}};
}

// Owners exchange parts of matrices.
std::vector<LayoutCase> layouts_of_whole_matrices() {
  const auto owned = [](Deck deck, OptimizerName name) {
    deck.optimizer.name = name;
    deck.optimizer.adam_learning_rate = 4e-3;
    return deck;
  };
  const Deck dense = owned(test_models()[0].deck, OptimizerName::muon);
  const Deck experts = owned(moe_models()[0].deck, OptimizerName::soap);
  return {{"Muon", on_mesh(dense, {3, 1, 2, 1, 2, 1, 0}, 1)}, {"SOAP", on_mesh(experts, {1, 1, 4, 1, 2, 2, 1}, 3, 6)}};
}

std::vector<LayoutCase> layouts_of_depths() {
  const auto models = mtp_models();
  return {{"depth 1", on_mesh(models[0].deck, {3, 1, 2, 1, 2, 1, 0}, 1)},
          {"depth 2, latent attention, experts", on_mesh(models[4].deck, {3, 1, 2, 1, 2, 2, 1}, 2, 6)}};
}

// A rank alone, over a wire.
struct Alone {
  std::shared_ptr<ReplayWire> wire;
  RunSetup setup;
  Mesh mesh;
  MemoryPlan plan;
  Session<double> session;

  Alone(const Deck& deck, int rank, std::shared_ptr<ReplayWire> by)
      : wire(std::move(by)),
        setup(make_setup(deck, rank)),
        mesh(std::make_unique<ReplayCommunicator>(rank, setup.mesh.world(), wire), setup.mesh, groups_of(setup)),
        plan(planned_memory(setup, RunKind::training)),
        session(setup, plan.total(), RunKind::training, mesh, 1) {
    session.initialise();
  }
};

std::string traffic_problem(const RunSetup& setup, const ReplayedStep& step) {
  const auto plan = plan_traffic(setup.buffers, setup.spec, setup.mesh, setup.share, setup.schedule);
  for (std::size_t g = 0; g < plan.size(); ++g)
    if (plan[g].first != step.sent[g].first || plan[g].second.bytes != step.sent[g].second.bytes)
      return plan[g].first + ": " + std::to_string(step.sent[g].second.total_bytes()) + " B sent, " +
             std::to_string(plan[g].second.total_bytes()) + " B planned";
  return "";
}

bool is_finite(Session<double>& session) {
  StepScalars scalars;
  copy_to_host(session.stream(), &scalars, session.scalars().data, sizeof scalars);
  session.stream().synchronize();
  return std::isfinite(scalars.loss_sum) && std::isfinite(scalars.norm_squared);
}

// Without the update's.
std::vector<Timeline::Span> of_gradients(const RunSetup& setup, std::vector<Timeline::Span> spans) {
  const auto tasks = step_tasks(setup.share, setup.schedule, setup.buffers.recompute).size();
  std::erase_if(spans, [&](const Timeline::Span& span) { return to_size(span.task) >= tasks; });
  return spans;
}

// Two steps: products, attention and collectives in the order of the plan, its bytes and its peak.
std::string problem_of(const Deck& deck, int rank, std::shared_ptr<ReplayWire> wire) {
  Alone alone(deck, rank, std::move(wire));
  Replay<double> replay(alone.session, *alone.wire);
  for (int i = 0; i < 2; ++i) {
    OperationRecord record(alone.mesh, alone.session.stream(), {alone.setup, true, false});
    alone.session.set_operation_tape(&record);
    const ReplayedStep step = replay.step();
    alone.session.set_operation_tape(nullptr);
    if (const auto text = operations_problem(alone.setup, record, step.spans); !text.empty()) return text;
    if (const auto text = timeline_problem(alone.setup, of_gradients(alone.setup, step.spans)); !text.empty())
      return text;
    if (const auto text = traffic_problem(alone.setup, step); !text.empty()) return text;
    std::int64_t waits = 0;
    for (const Task& task : replay.tasks())
      waits += segments_of(alone.setup.buffers, alone.setup.share, task).count_reads;
    if (step.waits != waits)
      return std::to_string(step.waits) + " waits for experts' counts, " + std::to_string(waits) + " planned";
    if (!is_finite(alone.session)) return "the loss or the norm is not finite";
  }
  const Arena& arena = alone.session.arena();
  if (arena.high_water() == alone.plan.total()) return "";
  return std::to_string(arena.high_water()) + " B at the peak, " + std::to_string(alone.plan.total()) + " B planned";
}

// Emulated devices are slow: a part of the cases.
bool takes_all() {
  return std::string_view(device_info().kind) == "cpu";
}

TEST(Replay, RanksOfAThousandDoWhatIsPlanned) {
  const bool every = takes_all();
  int runs = 0, number = 0;
  for (const LayoutCase& c : layouts_of_a_thousand()) {
    ASSERT_EQ(ranks_of(c.deck.mesh), 1024);
    for (const int rank : {0, 515, 1023}) {
      if (!every && number++ % 4 != 0) continue;
      const auto wire = std::make_shared<ReplayWire>(runs++ % 2 ? WireKind::copy : WireKind::none);
      EXPECT_EQ(problem_of(c.deck, rank, wire), "") << c.name << ", rank " << rank;
    }
  }
  EXPECT_EQ(runs, every ? 15 : 4);
}

// A rank of the first stage, of one between, and of the last: there the first of tp, which has the loss.
void expect_what_is_planned(const std::vector<LayoutCase>& cases) {
  for (const LayoutCase& c : cases) {
    const int ranks = static_cast<int>(ranks_of(c.deck.mesh));
    std::vector<int> some{ranks - static_cast<int>(c.deck.mesh.tp)};
    if (takes_all()) some.insert(some.end(), {0, ranks / 2});
    for (const int rank : some)
      EXPECT_EQ(problem_of(c.deck, rank, std::make_shared<ReplayWire>(WireKind::copy)), "")
          << c.name << ", rank " << rank;
  }
}

TEST(Replay, GathersCodes) {
  expect_what_is_planned(layouts_of_codes());
}

TEST(Replay, OwnersExchangeMatrices) {
  for (const LayoutCase& c : layouts_of_whole_matrices())
    EXPECT_GT(make_setup(c.deck, 0).share.matrices.rounds.size(), 0u) << c.name;
  expect_what_is_planned(layouts_of_whole_matrices());
}

TEST(Replay, PredictsSeveralTokens) {
  expect_what_is_planned(layouts_of_depths());
}

// A wire that takes time has each collective take as long as the plan says, with the call as the plan has it.
TEST(Replay, AWireHoldsItsStream) {
  const Deck deck = on_mesh(moe_models().front().deck, {2, 1, 2, 1, 2, 2, 2}, 1, 6);
  std::map<Group, std::int64_t> calls;
  const auto wire = std::make_shared<ReplayWire>(WireKind::time, [&](const Sent& call) {
    ++calls[call.group];
    return call.group == Group::tp ? 2e-3 : 0;
  });
  Alone alone(deck, 3, wire);
  Replay<double> replay(alone.session, *wire);
  calls.clear();
  const ReplayedStep step = replay.step();
  const auto counted = [&](Group group) {
    return step.sent[to_size(group)].second.total_calls() -
           step.sent[to_size(group)].second.calls[to_size(Collective::send)];
  };
  for (const Group group : {Group::tp, Group::ep, Group::etp, Group::parameter_shards, Group::scalars})
    EXPECT_EQ(calls[group], group == Group::etp ? calls[group] : counted(group)) << name_of(group);
  EXPECT_GT(calls[Group::tp], 20);
  EXPECT_GT(calls[Group::pp], 0);
  double seconds = 0;
  for (const TaskTime& time : task_times(alone.setup, replay.tasks(), step.spans)) seconds += time.collectives;
  EXPECT_GE(seconds, 2e-3 * static_cast<double>(calls[Group::tp]));
}

std::vector<std::string> lines_of_job(Mesh& mesh, const RunSetup& setup, Session<double>& session) {
  HostBatch batch;
  batch.allocate(setup.microbatches, setup.deck.train.microbatch_sequences, setup.deck.train.sequence_tokens,
                 setup.rows());
  BatchFiller filler(setup.deck.train.sequence_tokens, setup.spec.V());
  filler.begin(batch);
  for (std::int64_t row = 0; row < batch.sequences; ++row)
    filler.fill_drawn(batch, row, row * setup.replicas() + setup.share.data_rank, 1, {0, setup.spec.V()});
  filler.finish(batch);
  LabelCounts labels = batch.label_counts();
  mesh.data().sum_host({&labels.main, 1});
  mesh.data().sum_host({&labels.tokens, 1});
  OperationRecord record(mesh, session.stream(), {setup, true, false});
  session.set_operation_tape(&record);
  BatchFeed feed(batch);
  session.compute_gradients(feed, 1, labels);
  session.read_step(labels);
  session.set_operation_tape(nullptr);
  return record.lines();
}

// Each rank of a small job does alone what it does among its peers.
TEST(Replay, DoesWhatTheRankDoesInTheJob) {
  const auto dense = test_models(), experts = moe_models();
  const Deck sharded = on_mesh(dense[2].deck, {1, 1, 2, 2, 2, 1, 0}, 3);
  const Deck staged = on_mesh(dense[0].deck, {2, 1, 2, 1, 1, 1, 0}, 0);
  const Deck exchanged = on_mesh(experts[0].deck, {1, 1, 4, 1, 2, 2, 2}, 1, 6);
  const Deck latent = on_mesh(experts[2].deck, {2, 1, 2, 1, 1, 2, 1}, 0, 6);
  std::vector<Deck> decks{sharded, staged, exchanged, latent};
  for (const auto& cases : {layouts_of_codes(), layouts_of_whole_matrices(), layouts_of_depths()})
    for (const LayoutCase& c : cases)
      if (takes_all()) decks.push_back(c.deck);
  for (const Deck& deck : decks) {
    const int ranks = static_cast<int>(ranks_of(deck.mesh));
    std::vector<std::vector<std::string>> in_job(to_size(ranks));
    run_ranks(ranks, [&](Communicator& world) {
      const RunSetup setup = make_setup(deck, world.rank());
      Mesh mesh(world.duplicate(), setup.mesh, groups_of(setup));
      Session<double> session(setup, planned_memory(setup, RunKind::training).total(), RunKind::training, mesh, 1);
      session.initialise();
      in_job[to_size(world.rank())] = lines_of_job(mesh, setup, session);
    });
    for (int rank = 0; rank < ranks; ++rank) {
      Alone alone(deck, rank, std::make_shared<ReplayWire>(WireKind::none));
      Replay<double> replay(alone.session, *alone.wire);
      OperationRecord record(alone.mesh, alone.session.stream(), {alone.setup, true, false});
      alone.session.set_operation_tape(&record);
      replay.step();
      alone.session.set_operation_tape(nullptr);
      EXPECT_EQ(record.lines(), in_job[to_size(rank)]) << text_of(deck) << ", rank " << rank;
    }
  }
}

// Sums have its part once, others' parts are its own, and every receive is filled.
TEST(Replay, ItsNumbersStandForThoseOfOthers) {
  Stream stream;
  ReplayCommunicator ranks(2, 4, std::make_shared<ReplayWire>(WireKind::none));
  using Numbers = std::vector<double>;
  const Numbers twelve{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const DeviceArray<double, 1> x(stream, {{3}}, {1, 2, 3}), all(stream, {{12}}, twelve), out(stream, {{12}});
  ranks.all_reduce(stream, x.view());
  EXPECT_EQ(x.get(), (Numbers{1, 2, 3}));
  ranks.all_to_all(stream, all.view().data, out.view().data, 3, DType::f64);
  EXPECT_EQ(out.get(), (Numbers{6, 7, 8, 6, 7, 8, 6, 7, 8, 6, 7, 8}));
  ranks.reduce_scatter(stream, View<const double, 1>(all.view()), x.view());
  EXPECT_EQ(x.get(), (Numbers{6, 7, 8}));
  ranks.all_gather(stream, View<const double, 1>(x.view()), out.view());
  EXPECT_EQ(out.get(), (Numbers{6, 7, 8, 6, 7, 8, 6, 7, 8, 6, 7, 8}));
  const View<double, 1> sent = all.view().slice(0, 3), received = all.view().slice(3, 6);
  ranks.group_begin();
  ranks.send(stream, View<const double, 1>(sent), 3);
  ranks.receive(stream, received, 1);
  ranks.group_end(stream);
  EXPECT_EQ(values_of(stream, received), (Numbers{0, 1, 2}));
}

// Other ranks' weights are their initial values; sums have the rank's part once.
TEST(Replay, ReceivesWhatItWouldReceive) {
  const Deck deck = on_mesh(test_models()[0].deck, {2, 1, 4, 1, 1, 1, 0}, 1);
  Alone alone(deck, 5, std::make_shared<ReplayWire>(WireKind::none));
  Replay<double> replay(alone.session, *alone.wire);
  const ParameterStorage<double>& storage = alone.session.storage();
  std::set<UnitKind> kinds;  // units that are alike have the first one's
  std::int64_t compared = 0;
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const LocalUnit& unit = storage.local(u);
    if (!kinds.insert(unit.kind).second) continue;
    const auto whole = values_of(alone.session.stream(), storage.unit(u).whole);
    for (const forge::ElementRun& run : runs_of(unit, {0, unit.elements})) {
      const Parameter& p = unit.parameters[run.piece->parameter];
      for (std::int64_t i = 0; i < run.count; ++i, ++compared)
        ASSERT_EQ(whole[to_size(run.local + i)], initial_values(deck.train.seed, p)(run.global + i)) << p.name;
    }
  }
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace forge::test
