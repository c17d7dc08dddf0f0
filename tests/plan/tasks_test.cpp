#include "plan/tasks.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "../equivalence/cover.hpp"
#include "../equivalence/models.hpp"
#include "layout/unit_buffers.hpp"
#include "plan/setup.hpp"
#include "schedule/lower.hpp"

// The list of a rank's tasks, held to what must be true of any order of a step.

namespace forge::test {
namespace {

std::string text_of(const Task& t) {
  return std::string(name_of(t.op)) + " in " + forge::text_of(t.action) + ", layer " + std::to_string(t.layer) +
         ", unit " + std::to_string(static_cast<long>(t.unit)) + ", place " + std::to_string(t.buffer);
}

bool is_pass(TaskOp op) {
  return op == TaskOp::forward || op == TaskOp::backward_input || op == TaskOp::backward_weight ||
         op == TaskOp::backward;
}
// One after the other.
std::vector<Pass> passes_of(TaskOp op) {
  if (op == TaskOp::backward) return {Pass::backward_input, Pass::backward_weight};
  return {op == TaskOp::forward          ? Pass::forward
          : op == TaskOp::backward_input ? Pass::backward_input
                                         : Pass::backward_weight};
}

// Follows a list; `problem` is the first thing that is wrong.
class Follower {
 public:
  explicit Follower(const RunSetup& setup) : share_(setup.share), setup_(setup) {
    for (std::size_t u = 0; u < share_.units.size(); ++u)
      if (!zero(u).gathers()) ready_.insert(u);
  }

  std::string problem;

  void follow(const std::vector<Task>& tasks) {
    for (const Task& t : tasks) {
      step(t);
      if (!problem.empty()) return void(problem += ": " + text_of(t));
    }
  }
  // Behind the list of a step.
  void finish() {
    expect(frames_.empty(), "a frame stays open");
    expect(added_.empty(), "gradients that are not reduced");
    for (std::size_t u = 0; u < share_.units.size(); ++u)
      expect(last_[u] == 1, "a unit is not reduced for the last time once");
    std::size_t passes = 0;
    for (const auto& layers : share_.layers)
      for (const StageLayer& layer : layers)
        for (const Pass pass : {Pass::forward, Pass::backward_input, Pass::backward_weight})
          passes += does(layer, pass);
    expect(done_.size() == passes * static_cast<std::size_t>(setup_.microbatches), "passes are left out");
  }

 private:
  const Zero& zero(std::size_t unit) const { return share_.units[unit].zero; }
  void expect(bool holds, const char* otherwise) {
    if (!holds && problem.empty()) problem = otherwise;
  }

  void step(const Task& t) {
    switch (t.op) {
      case TaskOp::open:
        return frames_.push_back(t.frame);
      case TaskOp::close:
        expect(!frames_.empty() && frames_.back() == t.frame, "closes another frame than was opened last");
        if (!frames_.empty()) frames_.pop_back();
        return;
      case TaskOp::gather:
        expect(zero(t.unit).gathers(), "gathers what is whole");
        expect(!ready_.contains(t.unit) || t.buffer < 0, "gathers what stands there");
        if (t.buffer >= 0) {
          const auto key = buffer_of(t);
          expect(!held_.contains(key), "gathers into a place that is in use");
          stands_[key] = t.unit;
        }
        return void(gathered_.insert(t.unit));
      case TaskOp::wait_parameters:
        expect(gathered_.contains(t.unit) || zero(t.unit).stage < 3, "waits for nothing");
        if (t.buffer >= 0) {
          expect(stands_[buffer_of(t)] == t.unit, "another unit was gathered there");
          held_.insert(buffer_of(t));
        }
        return void(ready_.insert(t.unit));
      case TaskOp::release:
        expect(held_.erase(buffer_of(t)) == 1, "releases what isn't held");
        return void(ready_.erase(t.unit));
      case TaskOp::clear_gradients:
        expect(adding_.insert(buffer_of(t)).second, "clears a place that another unit's gradients are added to");
        return expect(cleared_.insert(t.unit).second, "clears what is being added to");
      case TaskOp::reduce_gradients:
        if (t.buffer >= 0) adding_.erase(buffer_of(t));
        expect(added_.erase(t.unit) == 1, "reduces what nothing was added to");
        expect(t.buffer < 0 || cleared_.erase(t.unit) == 1, "reduces a place that wasn't cleared");
        last_[t.unit] += t.last;
        return;
      case TaskOp::transfer:
      case TaskOp::local_copy:
        return expect(frames_.empty(), "a frame is open between passes");
      default:
        if (!is_pass(t.op)) return;
        for (const Pass one : passes_of(t.op)) pass(t, one);
    }
  }

  void pass(const Task& t, Pass pass) {
    const auto key = [&](Pass p) { return std::tuple(p, t.action.chunk, t.action.microbatch, t.layer); };
    const StageLayer& layer =
        share_.layers[static_cast<std::size_t>(t.action.chunk)][static_cast<std::size_t>(t.layer)];
    expect(done_.insert(key(pass)).second, "a pass runs twice");
    for (const Pass before : {Pass::forward, Pass::backward_input})
      expect(before >= pass || !does(layer, before) || done_.contains(key(before)),
             "a pass runs before its forward or B");
    for (const std::size_t unit : units_read(layer, pass))
      expect(ready_.contains(unit), "reads weights that are not there");
    for (const std::size_t unit : units_completed(layer, pass)) {
      expect(last_[unit] == 0, "adds to a gradient behind its last reduction");
      added_.insert(unit);
    }
  }

  using Buffer = std::pair<PoolClass, int>;
  Buffer buffer_of(const Task& t) const { return {pool_of(share_.units[t.unit]), t.buffer}; }

  const RankShare& share_;
  const RunSetup& setup_;
  std::vector<LayerMemory> frames_;
  std::set<std::size_t> gathered_, ready_;  // gathered in this list; readable
  std::map<Buffer, std::size_t> stands_;
  std::set<Buffer> held_, adding_;
  std::set<std::size_t> cleared_, added_;
  std::map<std::size_t, int> last_;
  std::set<std::tuple<Pass, int, int, int>> done_;
};

std::string list_text(const std::vector<Task>& tasks) {
  std::string text;
  for (const Task& t : tasks) text += text_of(t) + (t.last ? ", last\n" : "\n");
  return text;
}

// "" where the lists of all ranks hold; those of one pipeline coordinate are one list, as they call groups together.
std::string problem_of(const Deck& deck) {
  std::map<int, std::string> lists;
  for (int rank = 0; rank < ranks_of(deck.mesh); ++rank) {
    const RunSetup setup = make_setup(deck, rank);
    const std::vector<Task> tasks = step_tasks(setup.share, setup.schedule, setup.buffers.recompute);
    Follower step(setup);
    step.follow(tasks);
    if (step.problem.empty()) step.finish();
    if (!step.problem.empty()) return "rank " + std::to_string(rank) + ": " + step.problem;
    Follower evaluation(setup);
    evaluation.follow(gather_tasks(setup.share));
    evaluation.follow(evaluation_tasks(setup.share, setup.schedule));
    if (!evaluation.problem.empty()) return "evaluation, rank " + std::to_string(rank) + ": " + evaluation.problem;
    const std::string list = list_text(tasks);
    if (lists.emplace(setup.share.pp_rank, list).first->second != list)
      return "rank " + std::to_string(rank) + " has other tasks than another rank of its stage";
  }
  return "";
}

TEST(Tasks, KeepTheRulesOfAStepOnAnyLayout) {
  std::size_t cases = 0;
  for (const int ranks : {1, 2, 4, 6, 8})
    for (const auto& list : {drawn_layouts(ranks, 37), drawn_moe_layouts(ranks, 37), drawn_mtp_layouts(ranks, 1)})
      for (LayoutCase c : list) {
        if (cases % 3 == 0) {
          c.deck.train.precision = PrecisionName::bf16;
          c.deck.optimizer.gradients = StateType::bf16;
        }
        ASSERT_EQ(illegality(c.deck), "") << c.name;
        ASSERT_EQ(problem_of(c.deck), "") << c.name << ", " << ranks << " ranks";
        ++cases;
      }
  EXPECT_EQ(cases, 3u * (1 + 5 + 15 + 25 + 35));
}

// What the host waits for is the gradients alone: the update runs while it reports and prepares the next step.
TEST(Tasks, TheScalarsAreReadBeforeTheUpdate) {
  for (const auto& list : {drawn_layouts(4, 37), drawn_moe_layouts(4, 37)})
    for (const LayoutCase& c : list)
      for (const bool biases : {false, true}) {
        const std::vector<Task> tasks = update_tasks(make_setup(c.deck).share, biases);
        ASSERT_GT(tasks.size(), biases ? 2u : 1u);
        EXPECT_EQ(tasks[0].op, TaskOp::read) << c.name;
        EXPECT_EQ(tasks[1].op == TaskOp::update_biases, biases) << c.name;
      }
}

// Between the gather of a layer's block or experts and the wait for it something computes, but in the pass that begins
// the step.
TEST(Tasks, BlocksAndTheirExpertsAreGatheredAheadOfUse) {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    Deck deck = moe_models().front().deck;
    deck.mesh = {.dp_shard = 2};
    deck.train.zero_stage = 3;
    deck.train.recompute = recompute;
    ASSERT_EQ(illegality(deck), "");
    const RunSetup setup = make_setup(deck);
    std::set<std::size_t> on_their_way;
    std::map<PoolClass, int> ahead;
    for (const Task& t : step_tasks(setup.share, setup.schedule, setup.buffers.recompute)) {
      if (t.op == TaskOp::gather) on_their_way.insert(t.unit);
      if (t.op == TaskOp::forward || t.op == TaskOp::backward_input) {
        for (const std::size_t unit : on_their_way) ++ahead[pool_of(setup.share.units[unit])];
        on_their_way.clear();
      }
      const bool waits = t.op == TaskOp::wait_parameters && setup.share.units[t.unit].kind != UnitKind::token_table;
      EXPECT_FALSE(waits && on_their_way.contains(t.unit)) << text_of(t);
    }
    EXPECT_GE(ahead[PoolClass::blocks], 4);
    EXPECT_GE(ahead[PoolClass::experts], 2);
  }
}

}  // namespace
}  // namespace forge::test
