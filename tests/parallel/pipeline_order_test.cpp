#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "config/schedule_name.hpp"
#include "core/error.hpp"
#include "schedule/generate.hpp"
#include "schedule/lower.hpp"
#include "sleeping_stages.hpp"

// Lowered schedules executed by threads that really wait for each other (sleeping_stages.hpp).

namespace forge {
namespace {

struct Case {
  ScheduleName name;
  int ranks, chunks, microbatches;
};

class PipelineOrder : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Schedules, PipelineOrder,
                         testing::Values(Case{ScheduleName::gpipe, 4, 1, 4}, Case{ScheduleName::one_f_one_b, 4, 1, 6},
                                         Case{ScheduleName::one_f_one_b, 3, 1, 2},
                                         Case{ScheduleName::interleaved, 4, 2, 8},
                                         Case{ScheduleName::interleaved, 2, 3, 4},
                                         Case{ScheduleName::zero_bubble, 4, 1, 8},
                                         Case{ScheduleName::zero_bubble, 8, 1, 8}, Case{ScheduleName::zb_v, 4, 2, 8},
                                         Case{ScheduleName::zb_v, 8, 2, 16}, Case{ScheduleName::zb_v, 1, 2, 3}));

Schedule lowered(const Case& c) {
  const int chunks = c.name == ScheduleName::interleaved ? c.chunks : 1;
  return lower(generate({c.name, c.ranks, chunks, c.microbatches, 0}));
}

// Every stage did F, B and W of every microbatch once, in the order of its rank's list, with its neighbours' data.
void check(const Schedule& schedule, const SleepRun& run) {
  std::multiset<std::tuple<Op, int, int>> done, wanted;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::vector<Action> list;
    for (const Action& action : schedule.actions[r])
      if (is_compute(action.op)) list.push_back(action);
    EXPECT_EQ(run.done[r], list) << "rank " << rank;
    for (const Action& action : run.done[r]) {
      const int stage = schedule.stage_at(rank, action.chunk);
      if (action.op == Op::forward) done.insert({Op::forward, stage, action.microbatch});
      if (computes_input_gradient(action.op)) done.insert({Op::backward_input, stage, action.microbatch});
      if (computes_weight_gradient(action.op)) done.insert({Op::backward_weight, stage, action.microbatch});
    }
  }
  for (const Op op : {Op::forward, Op::backward_input, Op::backward_weight})
    for (int stage = 0; stage < schedule.stages(); ++stage)
      for (int m = 0; m < schedule.microbatches; ++m) wanted.insert({op, stage, m});
  EXPECT_EQ(done, wanted);
}

TEST_P(PipelineOrder, EveryStageDoesWhatItsScheduleSays) {
  const Schedule schedule = lowered(GetParam());
  SleepTimes times;
  times.forward = times.backward_input = times.backward_weight = std::chrono::microseconds(200);
  check(schedule, run_sleeping(schedule, times, 2));
}

// Times that differ from those the transfers were placed by: stages run late, never on wrong data, and end.
TEST_P(PipelineOrder, UnequalTimesChangeNothing) {
  const Schedule schedule = lowered(GetParam());
  SleepTimes times;
  times.forward = std::chrono::microseconds(300);
  times.backward_input = std::chrono::microseconds(50);
  check(schedule, run_sleeping(schedule, times));
}

// The stamps work: a list that reads before it has waited is an error, not a coincidence.
TEST(PipelineOrder, ReadingTooEarlyIsSeen) {
  Schedule schedule = lowered({ScheduleName::one_f_one_b, 2, 1, 2});
  std::erase_if(schedule.actions[1], [](const Action& a) { return a.op == Op::wait_recv_forward; });
  SleepTimes times;
  times.forward = times.backward_input = times.backward_weight = std::chrono::microseconds(20000);
  EXPECT_THROW(run_sleeping(schedule, times), Error);
}

}  // namespace
}  // namespace forge
