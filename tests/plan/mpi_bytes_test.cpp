#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <set>

#include "../comm/mpi_recorder.hpp"
#include "../equivalence/cover.hpp"
#include "../equivalence/layout_run.hpp"
#include "../equivalence/models.hpp"
#include "../long_run.hpp"
#include "comm/environment.hpp"
#include "comm/mpi_communicator.hpp"
#include "formula_cases.hpp"
#include "plan/memory.hpp"
#include "train/trainer.hpp"

// Run by mpirun on 8 ranks (tests/mpi_main.cpp): what goes to MPI in a training step, seen by wrappers of MPI's
// functions, against the formula and the program's own counters.

namespace forge::test {

extern Environment* environment;

namespace {

using ByRanks = std::map<std::vector<int>, HandedOver>;

// What a run hands over and counts, from its start to its end.
struct Sent {
  ByRanks handed;
  std::map<std::string, SentBytes> counted;
};

template <class T>
Sent run_typed(std::unique_ptr<Communicator> world, const Deck& deck) {
  forget_handed_over();
  const RunSetup setup = make_setup(deck, world->rank());
  Mesh mesh(std::move(world), setup.mesh, groups_of(setup));
  const MemoryPlan plan =
      plan_memory(setup.buffers, setup.share, setup.schedule, std::size_t{1} << 20, RunKind::training);
  std::vector<StepRecord> records;
  {
    Session<T> session(setup, plan.total(), RunKind::training, mesh, 1);
    session.initialise();
    const TrainingData data(setup);
    Trainer<T>(session, data, 1, TrainingLog(nullptr, &records)).run();
  }  // waits for what streams still do
  Sent sent{handed_over(), {}};
  for (const auto& [name, traffic] : mesh.traffic()) sent.counted[name] = by_kind(traffic);
  if (static_cast<std::int64_t>(records.size()) != deck.train.steps) throw std::runtime_error("other steps");
  return sent;
}

Sent run_steps(const Deck& checked, std::int64_t steps, std::int64_t message_bytes) {
  Deck deck = checked;
  deck.train.steps = steps;
  auto world = message_bytes > 0 ? MpiCommunicator::world(true, message_bytes) : environment->make_world();
  return with_compute_type(precision_of(deck),
                           [&](auto type) { return run_typed<decltype(type)>(std::move(world), deck); });
}

SentBytes difference(const SentBytes& more, const SentBytes& less) {
  return {more.all_reduce - less.all_reduce, more.all_gather - less.all_gather, more.messages - less.messages};
}
void add(SentBytes& to, const SentBytes& more) {
  to = {to.all_reduce + more.all_reduce, to.all_gather + more.all_gather, to.messages + more.messages};
}

// One step: what three have more than two.
struct Step {
  std::map<std::vector<int>, SentBytes> handed;
  std::map<std::vector<int>, std::int64_t> host;
  std::map<std::string, SentBytes> counted;
};
Step third_step(const Deck& deck, std::int64_t message_bytes = 0) {
  Sent two = run_steps(deck, 2, message_bytes), three = run_steps(deck, 3, message_bytes);
  Step step;
  for (const auto& [ranks, now] : three.handed) {
    const HandedOver& then = two.handed[ranks];
    if (ranks.size() < 2) continue;
    EXPECT_EQ(now.broadcast, then.broadcast);
    step.handed[ranks] =
        difference({now.all_reduce, now.all_gather, now.messages}, {then.all_reduce, then.all_gather, then.messages});
    if (now.host != then.host) step.host[ranks] = now.host - then.host;
  }
  for (const auto& [name, now] : three.counted) step.counted[name] = difference(now, two.counted[name]);
  return step;
}

// Where rows go to experts by what the router says: counters know, the formula doesn't.
bool is_routed(const Deck& deck, const std::string& group) {
  const ModelDeck& m = deck.model;
  return (group == "ep" || group == "etp") && m.dispatch == DispatchMethod::all_to_all && m.capacity_factor == 0;
}

// "" where this rank's step is what it ought to be.
std::string step_difference(const Deck& deck, std::set<std::string>& sending) {
  const int rank = environment->rank();
  const Step step = third_step(deck);
  std::map<std::vector<int>, SentBytes> formula, counted;
  for (const GroupBytes& group : sent_in_step(deck, rank)) {
    const SentBytes& own = step.counted.at(group.name);
    if (!is_routed(deck, group.name) && own != group.sent)
      return group.name + " counts " + bytes_text(own) + "; by the formula " + bytes_text(group.sent);
    if (own.total() > 0) sending.insert(group.name);
    add(formula[group.ranks], is_routed(deck, group.name) ? own : group.sent);
    add(counted[group.ranks], own);
  }
  for (const auto& [ranks, handed] : step.handed) {
    std::string which;
    for (const int r : ranks) which += " " + std::to_string(r);
    if (handed != formula[ranks])
      return "to ranks" + which + " MPI got " + bytes_text(handed) + "; by the formula " + bytes_text(formula[ranks]);
    if (handed != counted[ranks]) return "to ranks" + which + " other bytes are counted";
    formula.erase(ranks);
  }
  for (const auto& [ranks, sent] : formula)
    if (sent.total() > 0) return "MPI got nothing of " + bytes_text(sent);
  // Host values: the step's counts of labels and of documents' tokens, added over the ranks that read different data.
  const std::int64_t data = deck.mesh.dp_replicate * deck.mesh.dp_shard;
  std::int64_t host = 0;
  for (const auto& [ranks, bytes] : step.host) host += bytes;
  if (host != 2 * 2 * (data - 1) / data * 8) return "host values of " + std::to_string(host) + " B";
  return "";
}

class MpiBytes : public testing::Test {
 protected:
  // All ranks; the texts of all at the end.
  void run(const LayoutCase& c) {
    Deck deck = c.deck;
    const std::string rule = illegality(deck);
    ASSERT_EQ(rule, "") << c.name;
    std::string wrong;
    try {
      wrong = step_difference(deck, sending_);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s: %s\n", c.name.c_str(), text_of(deck).c_str(), error.what());
      environment->abort(1);
    }
    EXPECT_EQ(wrong, "") << "rank " << environment->rank() << ", " << c.name << ", " << text_of(deck);
    ++cases_;
  }
  // Whether any rank has sent on each of these groups.
  void expect_sending(const std::vector<std::string>& groups) {
    const auto world = environment->make_world();
    for (const std::string& group : groups) {
      std::int64_t sends = sending_.contains(group);
      world->sum_host({&sends, 1});
      EXPECT_GT(sends, 0) << group;
    }
  }

  std::size_t cases_ = 0;
  std::set<std::string> sending_;
};

std::vector<LayoutCase> simplified(const std::vector<LayoutCase>& layouts) {
  constexpr PrecisionName precisions[] = {PrecisionName::fp64, PrecisionName::fp32, PrecisionName::bf16};
  // Each third, of half of the volume too: every group must send somewhere.
  std::vector<LayoutCase> cases;
  for (std::size_t i = 0; i < layouts.size(); i += long_run() ? 1 : 3) cases.push_back(layouts[i]);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    simplify(cases[i].deck);
    cases[i].deck.train.precision = precisions[i % 3];
  }
  return cases;
}

TEST_F(MpiBytes, OfDenseLayoutsAreTheFormulas) {
  for (const LayoutCase& c : simplified(drawn_layouts(8, 33))) run(c);
  EXPECT_EQ(cases_, long_run() ? 35u : 12u);
  expect_sending({"scalars", "tp", "tp_behind", "cp", "pp", "gradients", "gradient_shards", "gradient_replicas",
                  "gradient_tp", "gradient_copies", "gradient_tied", "parameter_shards"});
}

TEST_F(MpiBytes, OfLayoutsWithExpertsAreTheFormulas) {
  for (const LayoutCase& c : simplified(drawn_moe_layouts(8, 33))) run(c);
  EXPECT_EQ(cases_, long_run() ? 35u : 12u);
  expect_sending({"ep", "etp", "expert_gradients", "expert_gradient_shards", "expert_parameter_shards"});
  std::size_t codes = 0;
  for (LayoutCase c : drawn_moe_layouts(8, 33)) {
    simplify(c.deck);
    if (codes == (long_run() ? 100 : 2) || !dispatches_codes(c.deck)) continue;
    run(c);
    ++codes;
  }
  EXPECT_GE(codes, 2u);
}

// Long buffers go round in messages. An all-reduce of k elements in parts that differ by one sends up to one element
// more or less than 2 k (n - 1) / n for each turn.
TEST_F(MpiBytes, OfLongBuffersAreTheCounters) {
  Deck deck = test_models().front().deck;
  deck.mesh.dp_replicate = deck.mesh.dp_shard = deck.mesh.tp = 2;
  deck.train.zero_stage = 1;
  ASSERT_EQ(illegality(deck), "");
  const Step step = third_step(deck, 1024);
  std::int64_t handed = 0, counted = 0;
  for (const auto& [ranks, sent] : step.handed) handed += sent.total();
  for (const auto& [name, sent] : step.counted) counted += sent.total();
  EXPECT_NEAR(static_cast<double>(handed), static_cast<double>(counted), 2 * 8 * 100);
  EXPECT_GT(handed, 100000);
}

// No function of MPI that sends slips by the wrappers.
TEST(MpiFunctions, AreAllKnown) {
  std::set<std::string> known(known_mpi_functions().begin(), known_mpi_functions().end());
  FILE* pipe = ::popen(("nm -D --undefined-only /proc/" + std::to_string(::getpid()) + "/exe").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char line[512];
  int found = 0;
  while (std::fgets(line, sizeof line, pipe)) {
    std::string name = line;
    name = name.substr(name.find_last_of(' ') + 1);
    name = name.substr(0, name.find_first_of("@\n"));
    if (name.rfind("MPI_", 0) != 0) continue;
    ++found;
    EXPECT_TRUE(known.contains(name)) << name << ": mpi_recorder.cpp must wrap it, or say that it sends nothing";
  }
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_GE(found, 10);
}

}  // namespace
}  // namespace forge::test
