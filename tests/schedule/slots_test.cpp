#include "schedule/slots.hpp"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "cases.hpp"
#include "schedule/interpret.hpp"

namespace forge {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

constexpr long garbage = -1;

// The messages under way between ranks, by (forward, receiving stage, microbatch).
using Mail = std::map<std::tuple<bool, int, int>, long>;

// Slots of one tensor with the values that stand in them.
struct Buffers {
  SlotTable table;
  std::vector<long> values;  // by first[chunk] + slot

  Buffers(const Schedule& schedule, int rank, Lifetime lifetime, bool shared)
      : table(assign_slots(schedule, rank, lifetime, shared)) {
    values.assign(at(table.total()), garbage);
  }
  long& operator()(const Action& action) {
    int first = 0;
    if (table.counts.size() > 1)
      for (int c = 0; c < action.chunk; ++c) first += table.counts[at(c)];
    return values.at(at(first + table.at(action.chunk, action.microbatch)));
  }
};

// Runs arithmetic through the slots: F maps x to x + 1, B maps g to g + 1, and both check that what they read is what
// was written for their (stage, microbatch). A receive's slot holds garbage from its post on; a send's slot must still
// hold the value when the send is waited for.
class Runner {
 public:
  Runner(const Schedule& schedule, int rank, bool shared, Mail& mail, std::vector<int>& weights)
      : s_(schedule),
        rank_(rank),
        mail_(mail),
        weights_(weights),
        input_(schedule, rank, Lifetime::input, shared),
        output_(schedule, rank, Lifetime::output, shared),
        output_gradient_(schedule, rank, Lifetime::output_gradient, shared),
        input_gradient_(schedule, rank, Lifetime::input_gradient, shared),
        saved_for_input_(schedule, rank, Lifetime::saved_for_input, shared),
        saved_for_weight_(schedule, rank, Lifetime::saved_for_weight, shared),
        rebuilt_(schedule, rank, Lifetime::rebuilt_for_weight, shared) {}

  void forward(const Action& a) {
    if (stage(a) == 0) input_(a) = token(0, a);
    EXPECT_EQ(input_(a), token(stage(a), a));
    saved_for_input_(a) = saved_for_weight_(a) = token(stage(a), a);
    output_(a) = input_(a) + 1;
  }
  void recompute(const Action& a) {
    EXPECT_EQ(input_(a), token(stage(a), a));
    rebuilt_(a) = input_(a);
    rebuilds_ = true;
  }
  void backward_input(const Action& a) {
    if (stage(a) == s_.stages() - 1) output_gradient_(a) = token(s_.stages(), a);
    EXPECT_EQ(output_gradient_(a), token(2 * s_.stages() - stage(a) - 1, a));
    EXPECT_EQ(saved_for_input_(a), token(stage(a), a));
    if (rebuilds_) {
      EXPECT_EQ(rebuilt_(a), token(stage(a), a));
    }
    input_gradient_(a) = output_gradient_(a) + 1;
  }
  void backward_weight(const Action& a) {
    EXPECT_EQ(output_gradient_(a), token(2 * s_.stages() - stage(a) - 1, a));
    EXPECT_EQ(input_(a), token(stage(a), a));
    EXPECT_EQ(saved_for_weight_(a), token(stage(a), a));
    if (rebuilds_) {
      EXPECT_EQ(rebuilt_(a), token(stage(a), a));
    }
    ++weights_[at(stage(a))];
  }
  void backward(const Action& a) {
    backward_input(a);
    backward_weight(a);
  }
  void post_send(const Action& a) {
    const bool up = is_forward_transfer(a.op);
    mail_[{up, stage(a) + (up ? 1 : -1), a.microbatch}] = up ? output_(a) : input_gradient_(a);
  }
  void wait_send(const Action& a) {
    const bool up = is_forward_transfer(a.op);
    EXPECT_EQ(up ? output_(a) : input_gradient_(a), token(up ? stage(a) + 1 : 2 * s_.stages() - stage(a), a));
  }
  void post_recv(const Action& a) { arriving(a) = garbage; }
  void wait_recv(const Action& a) { arriving(a) = mail_.at({is_forward_transfer(a.op), stage(a), a.microbatch}); }
  void hand_over(const Action& a) {
    const bool up = is_forward_transfer(a.op);
    const Place& reader = s_.places[at(stage(a) + (up ? 1 : -1))];
    ASSERT_EQ(reader.rank, rank_);
    const Action target{a.op, reader.chunk, a.microbatch};
    if (up)
      input_(target) = output_(a);
    else
      output_gradient_(target) = input_gradient_(a);
  }
  void begin_group(const Action&) {}
  void end_group(const Action&) {}
  void gather_parameters(const Action&) {}
  void wait_parameters(const Action&) {}
  void release_parameters(const Action&) {}
  void reduce_gradients(const Action& a) { EXPECT_EQ(weights_[at(stage(a))], s_.microbatches); }
  void wait_gradients(const Action&) {}

 private:
  int stage(const Action& a) const { return s_.stage_at(rank_, a.chunk); }
  // What has passed `steps` stages, forward and back.
  static long token(int steps, const Action& a) { return 1000L * a.microbatch + steps; }
  long& arriving(const Action& a) { return is_forward_transfer(a.op) ? input_(a) : output_gradient_(a); }

  const Schedule& s_;
  int rank_;
  Mail& mail_;
  std::vector<int>& weights_;
  Buffers input_, output_, output_gradient_, input_gradient_, saved_for_input_, saved_for_weight_, rebuilt_;
  bool rebuilds_ = false;
};

void run(const Schedule& schedule, bool shared) {
  Mail mail;
  std::vector<int> weights(at(schedule.stages()), 0);
  std::vector<Runner> runners;
  for (int rank = 0; rank < schedule.ranks; ++rank) runners.emplace_back(schedule, rank, shared, mail, weights);
  execute_all_ranks(schedule, runners);
  for (const int count : weights) EXPECT_EQ(count, schedule.microbatches);
}

TEST(Slots, NothingIsOverwrittenBeforeItsLastReader) {
  for (const ScheduleRequest& request : legal_requests(5, 11, 3))
    for (const bool recompute : {false, true})
      for (const bool shared : {false, true}) {
        run(lower(generate(request), {.recompute = recompute}), shared);
        ASSERT_FALSE(HasFailure()) << text_of(request);
      }
}

TEST(Slots, OneStageNeedsOneOfEach) {
  for (const ScheduleName name : {ScheduleName::one_f_one_b, ScheduleName::zero_bubble}) {
    const Schedule schedule = lower(generate({name, 1, 1, 7}), {.recompute = true});
    for (int lifetime = 0; lifetime <= static_cast<int>(Lifetime::input_gradient); ++lifetime)
      EXPECT_EQ(assign_slots(schedule, 0, static_cast<Lifetime>(lifetime)).counts, std::vector<int>{1});
  }
}

TEST(Slots, SavedActivationsAreTheMicrobatchesInFlight) {
  for (const ScheduleRequest& request : legal_requests(6, 13, 3)) {
    const Schedule schedule = lower(generate(request), {});
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      EXPECT_EQ(assign_slots(schedule, rank, Lifetime::saved_for_weight, true).total(),
                microbatches_in_flight(schedule, rank));
      EXPECT_EQ(assign_slots(schedule, rank, Lifetime::saved_for_input, true).total(),
                microbatches_in_flight(schedule, rank, false));
      EXPECT_EQ(assign_slots(schedule, rank, Lifetime::rebuilt_for_input).total(), 0);
    }
  }
}

TEST(Slots, ZeroBubbleHoldsWhatWReadsLongerThanWhatBReads) {
  const Schedule schedule = lower(generate({ScheduleName::zero_bubble, 4, 1, 8}), {});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(assign_slots(schedule, rank, Lifetime::saved_for_input).total(), 4 - rank);
    EXPECT_EQ(assign_slots(schedule, rank, Lifetime::saved_for_weight).total(), 4);
  }
}

}  // namespace
}  // namespace forge
