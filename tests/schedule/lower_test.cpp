#include "schedule/lower.hpp"

#include <gtest/gtest.h>

#include "cases.hpp"
#include "config/schedule_name.hpp"
#include "schedule/rendezvous.hpp"
#include "schedule/schedule_times.hpp"
#include "schedule/validate.hpp"

namespace forge {
namespace {

TEST(Lower, EveryScheduleIsLegal) {
  for (const ScheduleRequest& request : with_pairs(legal_requests(8, 17, 3))) {
    const Schedule compute = generate(request);
    ASSERT_EQ(find_violation(lower(compute)), "") << text_of(request);
  }
}

TEST(Lower, OneStageIsMinimal) {
  for (const ScheduleName name : {ScheduleName::one_f_one_b, ScheduleName::zero_bubble, ScheduleName::interleaved}) {
    const Schedule compute = generate({name, 1, 1, 2});
    EXPECT_EQ(text_of(lower(compute).actions[0]), "F c0 m0, BW c0 m0, F c0 m1, BW c0 m1");
  }
}

TEST(Lower, StagesOfOneRankHandOver) {
  EXPECT_EQ(text_of(lower(generate({ScheduleName::zb_v, 1, 1, 1})).actions[0]),
            "F c0 m0, copy_forward c0 m0, F c1 m0, BW c1 m0, copy_backward c1 m0, BW c0 m0");
}

TEST(Lower, TwoStagesExchangeInOneGroupWhereBothSendAtOnce) {
  // Both ranks finish at time 2 of the schedule's clock: rank 0 its second F, rank 1 its first.
  const Schedule schedule = lower(generate({ScheduleName::interleaved, 2, 2, 2}));
  const std::string text = text_of(schedule.actions[0]);
  EXPECT_NE(text.find("begin_group, post_send_forward c0 m1 to 1, post_recv_forward c1 m0 peer 1, end_group"),
            std::string::npos)
      << text;
}

// The cooldown of ZB-H1 waits for B's: whoever joins B and W there delays the previous stage.
TEST(Lower, NeverDelaysAStepAndKeepsBApartWhereItIsAwaited) {
  const DurationOf unit = uniform_durations(1, 1, 1);
  for (const ScheduleRequest& request : with_pairs(legal_requests(6, 13, 3))) {
    const Schedule compute = generate(request);
    const Schedule lowered = lower(compute);
    EXPECT_DOUBLE_EQ(timeline(lowered, unit).makespan, timeline(compute, unit).makespan) << text_of(request);
    if (request.name != ScheduleName::zero_bubble || request.pairs) continue;
    for (int rank = 1; rank < lowered.ranks; ++rank)
      for (const Action& action : lowered.actions[static_cast<std::size_t>(rank)]) EXPECT_NE(action.op, Op::backward);
    for (const Action& action : lowered.actions[0]) EXPECT_NE(action.op, Op::end_group);
  }
}

TEST(Lower, ForwardOnlyIsOnePassThroughAllStages) {
  for (const ScheduleRequest& request : legal_requests(4, 4, 3)) {
    const Schedule schedule = lower(forward_only(generate(request)));
    EXPECT_EQ(schedule.microbatches, 1);
    int passes = 0;
    for (const auto& list : schedule.actions)
      for (const Action& action : list) passes += is_compute(action.op);
    EXPECT_EQ(passes, schedule.stages()) << text_of(request);
    EXPECT_EQ(find_rendezvous_violation(schedule), "") << text_of(request);
  }
}

}  // namespace
}  // namespace forge
