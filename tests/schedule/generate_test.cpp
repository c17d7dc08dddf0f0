#include "schedule/generate.hpp"

#include <gtest/gtest.h>

#include "cases.hpp"
#include "config/schedule_name.hpp"
#include "core/to_size.hpp"
#include "schedule/lower.hpp"
#include "schedule/schedule_times.hpp"
#include "schedule/validate.hpp"

namespace forge {
namespace {

// Idle share when a whole stage's F, B and W take one unit each, whatever the number of chunks it is cut into.
double bubble(const ScheduleRequest& request) {
  const Schedule schedule = generate(request);
  const double unit = 1.0 / schedule.chunks_per_rank;
  return timeline(schedule, uniform_durations(unit, unit, unit)).bubble_fraction();
}

constexpr double rounding = 1e-12;  // sums of at most 300 numbers of size 1/4 … 100

// What the tests of this folder go through, by hand. Without interleaving 4 names and one chunk of interleaved: 5 ·
// ranks · microbatches; each further chunk the multiples of pp, the sum over pp of M / pp.
TEST(Generate, TheRequestsAreThese) {
  const std::size_t names = all_names.size();
  EXPECT_EQ(legal_requests(8, 24, 4).size(), names * 8 * 24 + 3 * (24 + 12 + 8 + 6 + 4 + 4 + 3 + 3));
  EXPECT_EQ(legal_requests(8, 24, 1).size(), names * 8 * 24);
  EXPECT_EQ(legal_requests(8, 17, 3).size(), names * 8 * 17 + 2 * (17 + 8 + 5 + 4 + 3 + 2 + 2 + 2));
  EXPECT_EQ(legal_requests(6, 13, 3).size(), names * 6 * 13 + 2 * (13 + 6 + 4 + 3 + 2 + 2));
  EXPECT_EQ(legal_requests(6, 13, 1).size(), names * 6 * 13);
  EXPECT_EQ(legal_requests(5, 11, 3).size(), names * 5 * 11 + 2 * (11 + 5 + 3 + 2 + 2));
  EXPECT_EQ(legal_requests(4, 8, 4).size(), names * 4 * 8 + 3 * (8 + 4 + 2 + 2));
  EXPECT_EQ(legal_requests(4, 4, 3).size(), names * 4 * 4 + 2 * (4 + 2 + 1 + 1));
}

TEST(Generate, EveryScheduleIsLegal) {
  for (const ScheduleRequest& request : legal_requests(8, 24, 4))
    ASSERT_EQ(find_violation(generate(request)), "") << text_of(request);
}

// The (chunk, microbatch) of a rank's F's, B's or W's, in order; a whole backward pass is both of these.
std::vector<std::pair<int, int>> passes_of(const Schedule& schedule, int rank, bool (*is)(Op), int chunk = -1) {
  std::vector<std::pair<int, int>> list;
  for (const Action& action : schedule.actions[to_size(rank)])
    if (is(action.op) && (chunk < 0 || action.chunk == chunk)) list.emplace_back(action.chunk, action.microbatch);
  return list;
}

using List = std::vector<Action>;
constexpr auto is_forward = [](Op op) { return op == Op::forward; };

// In pairs F's and B's keep their order, and each chunk's W's theirs: sums add up as without. A stage's backward pass
// reads what an earlier pair left.
TEST(Generate, PairsAreLegal) {
  int paired = 0;
  for (ScheduleRequest request : legal_requests(8, 24, 4)) {
    if (!has_pairs(request.name)) continue;
    const Schedule alone = generate(request);
    request.pairs = true;
    const Schedule pairs = generate(request);
    ASSERT_EQ(find_violation(pairs), "") << text_of(request);
    ASSERT_EQ(find_violation(lower(pairs)), "") << text_of(request);
    int paired_here = 0;
    for (int rank = 0; rank < request.ranks; ++rank) {
      ASSERT_EQ(passes_of(pairs, rank, is_forward), passes_of(alone, rank, is_forward)) << text_of(request);
      ASSERT_EQ(passes_of(pairs, rank, computes_input_gradient), passes_of(alone, rank, computes_input_gradient));
      for (int chunk = 0; chunk < pairs.chunks_per_rank; ++chunk)
        ASSERT_EQ(passes_of(pairs, rank, computes_weight_gradient, chunk),
                  passes_of(alone, rank, computes_weight_gradient, chunk));
      for (const Action& action : pairs.actions[to_size(rank)]) paired_here += action.paired;
    }
    const bool some = request.microbatches >= least_paired(request.name, request.ranks);
    EXPECT_EQ(paired_here > 0, some) << text_of(request);
    paired += paired_here;
  }
  EXPECT_GT(paired, 20000);
}

// Whole microbatches between F and W, or zb_v's halves of them: 2 pp + 1, where there are as many.
TEST(Generate, PairsHoldSoManyMicrobatches) {
  for (ScheduleRequest request : legal_requests(8, 24, 1)) {
    if (!has_pairs(request.name)) continue;
    const Schedule alone = generate(request);
    request.pairs = true;
    const Schedule pairs = generate(request);
    const bool some = request.microbatches >= least_paired(request.name, request.ranks);
    for (int rank = 0; rank < request.ranks; ++rank) {
      const int whole = std::min(2 * (request.ranks - rank), request.microbatches);
      const int halves = std::min(2 * request.ranks - rank, request.microbatches) + rank + 1;
      const int of_v = some ? halves : microbatches_in_flight(alone, rank);
      EXPECT_EQ(microbatches_in_flight(pairs, rank), request.name == ScheduleName::zb_v ? of_v : whole)
          << text_of(request) << " rank " << rank;
    }
  }
}

// F = B = W = 1. 1f1b: forwards one by one up to the first pair of the last stage, and backwards likewise;
// zero_bubble's gradients need not wait for W's on their way back; zb_v's ranks stand still 2 (pp - 1) halves of a
// unit, and the middle has pairs alone on each.
TEST(Generate, PairsTakeSoLong) {
  const auto makespan = [](const ScheduleRequest& request) {
    return timeline(generate(request), uniform_durations(1, 1, 1)).makespan;
  };
  for (int pp = 1; pp <= 8; ++pp)
    for (int m = std::max(2, 2 * pp); m <= 24; ++m) {
      const double work = 3 * m, last = pp - 1;
      EXPECT_NEAR(makespan({ScheduleName::one_f_one_b, pp, 1, m, 0, true}), work + 3 * last, 1e-9);
      EXPECT_NEAR(makespan({ScheduleName::zero_bubble, pp, 1, m, 0, true}), work + (pp > 1 ? 2 * last + 1 : 0), 1e-9);
      EXPECT_NEAR(makespan({ScheduleName::zb_v, pp, 1, m, 0, true}), 2 * work + 2 * last, 1e-9);
    }
}

// Gradients of the token table come from W's of stage 0, and from B's of any stage that has multi-token prediction:
// those on stage 0's rank come in the same order as without pairs.
TEST(Generate, PairsAddToTheTokenTableAsPassesAlone) {
  for (ScheduleRequest request : legal_requests(8, 24, 4)) {
    if (!has_pairs(request.name)) continue;
    const auto adding = [](const Schedule& schedule) {
      List list;
      for (const Action& action : schedule.actions[0]) {
        if (computes_input_gradient(action.op)) list.push_back({Op::backward_input, action.chunk, action.microbatch});
        if (computes_weight_gradient(action.op) && action.chunk == 0)
          list.push_back({Op::backward_weight, action.chunk, action.microbatch});
      }
      return list;
    };
    const List alone = adding(generate(request));
    request.pairs = true;
    ASSERT_EQ(text_of(adding(generate(request))), text_of(alone)) << text_of(request);
  }
}

TEST(Generate, OneStageOfOneFOneBIsTheGradientAccumulationLoop) {
  EXPECT_EQ(text_of(generate({ScheduleName::one_f_one_b, 1, 1, 3}).actions[0]),
            "F c0 m0, BW c0 m0, F c0 m1, BW c0 m1, F c0 m2, BW c0 m2");
}

TEST(Generate, MicrobatchesInFlightAreBounded) {
  for (const ScheduleRequest& request : legal_requests(8, 24, 1)) {
    const Schedule schedule = generate(request);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const int whole = microbatches_in_flight(schedule, rank);
      const int input = microbatches_in_flight(schedule, rank, false);
      switch (request.name) {
        case ScheduleName::gpipe:
          EXPECT_EQ(whole, request.microbatches);
          break;
        case ScheduleName::one_f_one_b:
        case ScheduleName::interleaved:
          EXPECT_EQ(whole, std::min(request.ranks - rank, request.microbatches)) << text_of(request);
          break;
        case ScheduleName::zero_bubble:
          EXPECT_LE(whole, request.ranks) << text_of(request);
          EXPECT_LE(input, request.ranks - rank) << text_of(request);
          break;
        case ScheduleName::zb_v:  // halves of a stage: pp whole ones
          EXPECT_LE(whole, 2 * request.ranks) << text_of(request);
      }
    }
  }
}

TEST(Generate, BubblesOfGpipeAndOneFOneBFollowTheFormula) {
  for (int pp = 1; pp <= 8; ++pp)
    for (int m = 1; m <= 24; ++m)
      for (const ScheduleName name : {ScheduleName::gpipe, ScheduleName::one_f_one_b})
        EXPECT_NEAR(bubble({name, pp, 1, m}), (pp - 1.0) / (m + pp - 1.0), rounding) << pp << " " << m;
}

TEST(Generate, InterleavingDividesTheBubbleByTheChunks) {
  for (const ScheduleRequest& request : legal_requests(8, 24, 4)) {
    if (request.name != ScheduleName::interleaved) continue;
    const double pp = request.ranks, slots = request.chunks * request.microbatches;
    EXPECT_NEAR(bubble(request), (pp - 1) / (slots + pp - 1), rounding) << text_of(request);
    if (request.ranks > 1 && request.chunks > 1) {
      EXPECT_LT(bubble(request), bubble({ScheduleName::one_f_one_b, request.ranks, 1, request.microbatches}));
    }
  }
}

TEST(Generate, ZeroBubbleIsSmallerThanOneFOneBAndTheVSmallerStill) {
  for (int pp = 2; pp <= 8; ++pp)
    for (int m = 1; m <= 24; ++m) {
      const double one = bubble({ScheduleName::one_f_one_b, pp, 1, m});
      const double zero = bubble({ScheduleName::zero_bubble, pp, 1, m});
      const double v = bubble({ScheduleName::zb_v, pp, 1, m});
      EXPECT_LT(zero, one) << pp << " " << m;
      EXPECT_LT(v, zero) << pp << " " << m;
      // (pp - 1)(F + B - W) of the step (arXiv 2401.10241, table 2), once the pipeline fills.
      if (m >= pp) {
        EXPECT_NEAR(zero, (pp - 1.0) / (3 * m + pp - 1.0), rounding) << pp << " " << m;
      }
      if (m >= 2 * pp - 1) {
        EXPECT_NEAR(v, (pp - 1.0) / (6 * m + pp - 1.0), rounding) << pp << " " << m;
      }
    }
}

TEST(Generate, GroupsFollowTheRule) {
  int legal = 0, illegal = 0;
  for (int pp = 1; pp <= 4; ++pp)
    for (int m = 1; m <= 12; ++m)
      for (int group = 1; group <= 13; ++group) {
        const ScheduleRequest request{ScheduleName::interleaved, pp, 2, m, group};
        const bool rule = group >= pp && group <= m && (m % group == 0 || m % group >= pp);
        if (rule) {
          ++legal;
          const Schedule schedule = generate(request);
          ASSERT_EQ(find_violation(schedule), "") << text_of(request);
          ASSERT_EQ(find_violation(lower(schedule)), "") << text_of(request);
        } else {
          ++illegal;
          EXPECT_THROW(generate(request), BadInput) << text_of(request);
        }
      }
  EXPECT_GT(legal, 100);
  EXPECT_GT(illegal, 100);
}

TEST(Generate, PlacesOfTheV) {
  const Schedule schedule = generate({ScheduleName::zb_v, 4, 1, 4});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(schedule.stage_at(rank, 0), rank);
    EXPECT_EQ(schedule.stage_at(rank, 1), 7 - rank);
  }
}

TEST(Generate, ErrorsNameKeyRuleAndNearestValues) {
  const auto message = [](const ScheduleRequest& request) -> std::string {
    try {
      generate(request);
    } catch (const BadInput& error) {
      return error.what();
    }
    return "";
  };
  const std::string group = message({ScheduleName::interleaved, 3, 2, 5});
  for (const char* part : {"schedule.name interleaved", "mesh.pp = 3", "M = 5", "3 or 6"})
    EXPECT_NE(group.find(part), std::string::npos) << group;
  EXPECT_NE(message({ScheduleName::interleaved, 4, 2, 2}).find(": 4"), std::string::npos);
  EXPECT_NE(message({ScheduleName::interleaved, 4, 2, 8, 3}).find("the least is 4"), std::string::npos);
  EXPECT_NE(message({ScheduleName::gpipe, 0, 1, 8}).find("mesh.pp"), std::string::npos);
  EXPECT_NE(message({ScheduleName::interleaved, 2, 0, 8}).find("schedule.virtual_stages"), std::string::npos);
  EXPECT_NE(message({ScheduleName::gpipe, 2, 1, 0}).find("train.global_batch_sequences"), std::string::npos);
}

}  // namespace
}  // namespace forge
