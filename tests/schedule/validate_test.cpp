#include "schedule/validate.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cases.hpp"
#include "config/schedule_name.hpp"

namespace forge {
namespace {

using List = std::vector<Action>;

// Each transfer posted and waited for where it is needed: right for buffered sends, wrong for rendezvous.
Schedule lowered_naively(const Schedule& compute) {
  Schedule schedule = compute;
  schedule.lowered = true;
  for (int rank = 0; rank < compute.ranks; ++rank) {
    List list;
    const int last = compute.stages() - 1;
    for (const Action& action : compute.actions[static_cast<std::size_t>(rank)]) {
      const int stage = compute.stage_at(rank, action.chunk);
      const bool forward = action.op == Op::forward, backward = computes_input_gradient(action.op);
      const auto transfer = [&](Op post, int other) {
        const int peer = compute.places[static_cast<std::size_t>(other)].rank;
        list.push_back({post, action.chunk, action.microbatch, peer});
        list.push_back({static_cast<Op>(static_cast<int>(post) + 1), action.chunk, action.microbatch, peer});
      };
      if (forward && stage > 0) transfer(Op::post_recv_forward, stage - 1);
      if (backward && stage < last) transfer(Op::post_recv_backward, stage + 1);
      list.push_back(action);
      if (forward && stage < last) transfer(Op::post_send_forward, stage + 1);
      if (backward && stage > 0) transfer(Op::post_send_backward, stage - 1);
    }
    schedule.actions[static_cast<std::size_t>(rank)] = list;
  }
  return schedule;
}

TEST(Validate, NaiveLoweringHangsUnderRendezvous) {
  EXPECT_EQ(find_violation(lowered_naively(generate({ScheduleName::gpipe, 4, 1, 6}))), "");
  for (int pp = 2; pp <= 5; ++pp) {
    const std::string text = find_violation(lowered_naively(generate({ScheduleName::one_f_one_b, pp, 1, pp + 2})));
    EXPECT_NE(text.find("deadlock under rendezvous sends"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 0 in post_send_forward"), std::string::npos) << text;
  }
}

// Small schedules of every kind, lowered.
std::vector<Schedule> samples() {
  std::vector<Schedule> schedules;
  for (const ScheduleName name : all_names) schedules.push_back(lower(generate({name, 3, 2, 6})));
  return schedules;
}

template <class Change>
void expect_caught(const Schedule& schedule, const char* what, Change&& change) {
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank)
    for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      Schedule wrong = schedule;
      if (!change(wrong, wrong.actions[rank], i)) continue;
      EXPECT_NE(find_violation(wrong), "")
          << schedule.name << ", rank " << rank << ": " << what << " " << text_of(schedule.actions[rank][i]);
    }
}

TEST(Validate, EveryDroppedActionIsNoticed) {
  for (const Schedule& schedule : samples())
    expect_caught(schedule, "dropped", [](Schedule&, List& list, std::size_t i) {
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    });
}

TEST(Validate, EveryDoubledActionIsNoticed) {
  for (const Schedule& schedule : samples())
    expect_caught(schedule, "doubled", [](Schedule&, List& list, std::size_t i) {
      const Action again = list[i];
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), again);
      return true;
    });
}

TEST(Validate, EveryWrongMicrobatchChunkAndPeerIsNoticed) {
  const auto names_a_message = [](Op op) {
    return is_compute(op) || (op >= Op::post_send_forward && op <= Op::copy_backward);
  };
  for (const Schedule& schedule : samples()) {
    expect_caught(schedule, "other microbatch for", [&](Schedule& s, List& list, std::size_t i) {
      list[i].microbatch = (list[i].microbatch + 1) % s.microbatches;
      return names_a_message(list[i].op);
    });
    expect_caught(schedule, "other chunk for", [&](Schedule& s, List& list, std::size_t i) {
      list[i].chunk = (list[i].chunk + 1) % s.chunks_per_rank;
      return s.chunks_per_rank > 1 && list[i].op != Op::begin_group && list[i].op != Op::end_group;
    });
    expect_caught(schedule, "other peer for", [&](Schedule& s, List& list, std::size_t i) {
      if (list[i].peer < 0) return false;
      list[i].peer = (list[i].peer + 1) % s.ranks;
      return true;
    });
  }
}

// Two sends of one rank to one peer in the wrong order: complete, but the receives on the other side meet the wrong
// ones.
TEST(Validate, SwappedSendsAreNoticed) {
  Schedule schedule = lower(generate({ScheduleName::gpipe, 2, 1, 3}));
  List& list = schedule.actions[0];
  List sends;
  for (Action& action : list)
    if (action.op == Op::post_send_forward) sends.push_back(action);
  ASSERT_EQ(sends.size(), 3u);
  // All F's first, then the sends in the order 1, 0, 2.
  List rest;
  for (const Action& action : list)
    if (action.op != Op::forward && action.op != Op::post_send_forward && action.op != Op::wait_send_forward)
      rest.push_back(action);
  list = {{Op::forward, 0, 0}, {Op::forward, 0, 1}, {Op::forward, 0, 2}};
  for (const int m : {1, 0, 2})
    list.insert(list.end(), {{Op::post_send_forward, 0, m, 1}, {Op::wait_send_forward, 0, m, 1}});
  list.insert(list.end(), rest.begin(), rest.end());
  const std::string text = find_violation(schedule);
  EXPECT_NE(text.find("names another message"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 0: post_send_forward c0 m1 to 1"), std::string::npos) << text;
}

TEST(Validate, TextsNameRankActionAndRule) {
  Schedule schedule = generate({ScheduleName::zero_bubble, 2, 1, 3});
  std::erase(schedule.actions[1], Action{Op::backward_weight, 0, 2});
  EXPECT_EQ(find_violation(schedule), "rank 1: W c0 m2 (stage 1) is missing");
  try {
    validate(schedule);
    FAIL();
  } catch (const BadInput& error) {
    EXPECT_STREQ(error.what(), "schedule zero_bubble: rank 1: W c0 m2 (stage 1) is missing");
  }

  schedule = generate({ScheduleName::one_f_one_b, 1, 1, 2});
  std::swap(schedule.actions[0][0], schedule.actions[0][1]);
  EXPECT_EQ(find_violation(schedule), "rank 0: B c0 m0 (stage 0) stands before rank 0: F c0 m0 (stage 0)");

  schedule = generate({ScheduleName::gpipe, 2, 1, 2});
  std::swap(schedule.actions[0][1], schedule.actions[0][2]);  // B m0 before F m1: rank 1 has all F's first
  EXPECT_NE(find_violation(schedule).find("waits for B of stage 1, microbatch 0"), std::string::npos);

  schedule = generate({ScheduleName::gpipe, 2, 1, 2});
  schedule.places[1] = {0, 0};
  EXPECT_NE(find_violation(schedule).find("one to one"), std::string::npos);
}

}  // namespace
}  // namespace forge
