#include "plan/repeat.hpp"

#include <gtest/gtest.h>

#include <map>

#include "../equivalence/cover.hpp"
#include "config/grouped_products.hpp"
#include "layout/unit_buffers.hpp"
#include "plan/setup.hpp"

// What is done again where experts' rows have overflowed, held to the list that it stands in.

namespace forge::test {
namespace {

// Where the weights of units that take turns stand, and where layers look for them.
struct Weights {
  using Place = std::pair<PoolClass, int>;
  std::map<Place, std::size_t> content;
  std::map<std::size_t, int> read_at;

  bool operator==(const Weights&) const = default;
};

struct Counts {
  std::size_t checks = 0, gathers = 0, passes = 0;
};

class Follower {
 public:
  Follower(const RankShare& share, Counts& counts) : share_(share), counts_(counts) {}

  std::string problem;

  void follow(const std::vector<Task>& tasks) {
    const auto repeats = forward_repeats(tasks, share_);
    for (const Task& t : tasks) {
      step(t);
      if (t.op == TaskOp::keep_sums) expected_.clear();
      if (t.op == TaskOp::forward) expected_.push_back(t.layer);
      if (t.op == TaskOp::check_overflow) repeat(t, repeats.at(static_cast<std::size_t>(t.round)));
    }
    if (tasks.empty() || static_cast<std::size_t>(checks_) != repeats.size()) problem = "checks and repeats differ";
  }

 private:
  const StageLayer& layer(const Task& t) const {
    return share_.layers[static_cast<std::size_t>(t.action.chunk)][static_cast<std::size_t>(t.layer)];
  }
  Weights::Place place_of(const Task& t) const { return {pool_of(share_.units[t.unit]), t.place}; }

  void step(const Task& t) {
    if (t.op == TaskOp::gather && t.place >= 0) now_.content[place_of(t)] = t.unit;
    if (t.op == TaskOp::wait_parameters && t.place >= 0) now_.read_at[t.unit] = t.place;
    if (t.op == TaskOp::release) now_.read_at.erase(t.unit);
  }

  void repeat(const Task& check, const std::vector<Task>& tasks) {
    const Weights found = now_;
    std::vector<int> passes;
    for (const Task& t : tasks) {
      step(t);
      counts_.gathers += t.op == TaskOp::gather;
      if (t.action.chunk != check.action.chunk || t.action.microbatch != check.action.microbatch)
        problem = "another microbatch is done again";
      if (t.op != TaskOp::forward) continue;
      passes.push_back(t.layer);
      for (const std::size_t unit : units_read(layer(t), Pass::forward)) {
        const Zero& zero = share_.units[unit].zero;
        if (!zero.gathers() || zero.keeps_whole()) continue;
        const auto at = now_.read_at.find(unit);
        if (at == now_.read_at.end() || now_.content[{pool_of(share_.units[unit]), at->second}] != unit)
          problem = "a pass reads weights of another unit";
      }
    }
    if (passes != expected_) problem = "other passes are done again than those that a check is behind";
    if (layer(check).kind != LayerKind::block || layer(check).second == no_unit) problem = "a check without experts";
    if (!(now_ == found)) problem = "weights stand elsewhere behind a repeat";
    counts_.passes += passes.size();
    ++counts_.checks;
    ++checks_;
  }

  const RankShare& share_;
  Counts& counts_;
  Weights now_;
  std::vector<int> expected_;
  int checks_ = 0;
};

TEST(Repeats, ReadTheirWeightsAndLeaveThemWhereTheyWere) {
  Counts counts;
  for (const int ranks : {2, 4, 8})
    for (const auto& list : {drawn_moe_layouts(ranks, 41), drawn_mtp_layouts(ranks, 1)})
      for (LayoutCase c : list) {
        ASSERT_EQ(illegality(c.deck), "") << c.name;
        c.deck.machine.grouped = GroupedProducts::tensor_cores;
        c.deck.machine.dispatch_counts = DispatchCounts::device;
        for (int rank = 0; rank < ranks; ++rank) {
          const RunSetup setup = make_setup(c.deck, rank);
          if (!setup.share.checks_overflow) continue;
          Follower follower(setup.share, counts);
          follower.follow(step_tasks(setup.share, setup.schedule, setup.buffers.recompute));
          ASSERT_EQ(follower.problem, "") << c.name << ", rank " << rank << " of " << ranks;
        }
      }
  EXPECT_GT(counts.checks, 100u);
  EXPECT_GT(counts.passes, counts.checks);
  EXPECT_GT(counts.gathers, 100u);
}

}  // namespace
}  // namespace forge::test
