#include "plan/slots.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <tuple>

#include "cases.hpp"
#include "config/schedule_name.hpp"
#include "one_block.hpp"

namespace forge {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

constexpr long garbage = -1;

// The messages under way between ranks, by (forward, receiving stage, microbatch).
using Mail = std::map<std::tuple<bool, int, int>, long>;

// Slots of one region with the values that stand in them.
struct Buffers {
  const SlotTable& table;
  std::vector<std::vector<long>> values;  // by chunk, slot

  explicit Buffers(const SlotTable& t) : table(t) {
    for (const int count : table.counts) values.emplace_back(at(count), garbage);
  }
  long& operator()(int chunk, int m) { return values.at(at(chunk)).at(at(table.at(chunk, m))); }
};

// Runs arithmetic through the slots of a rank's tasks: F maps x to x + 1, B maps g to g + 1, and both check that what
// they read is what was written for their (stage, microbatch). A receive's slot holds garbage from its post on; a
// send's slot must still hold the value when the send is waited for.
class Runner {
 public:
  Runner(const Schedule& schedule, int rank, Mail& mail, std::vector<int>& weights)
      : s_(schedule),
        share_(one_block_share(schedule, rank)),
        tasks_(step_tasks(share_, schedule, Recompute::full)),
        tables_(assign_slots(tasks_, schedule.chunks_per_rank, schedule.microbatches)),
        mail_(mail),
        weights_(weights) {
    for (const SlotTable& table : tables_) buffers_.emplace_back(table);
  }

  // Goes on until it waits for another rank's message; whether anything was done.
  bool advance() {
    const std::size_t begin = next_;
    while (next_ < tasks_.size() && ready(tasks_[next_])) run(tasks_[next_++]);
    return next_ > begin;
  }
  bool finished() const { return next_ == tasks_.size(); }

 private:
  int stage(const Task& t) const { return s_.stage_at(share_.pp_rank, t.action.chunk); }
  // What has passed `steps` stages, forward and back.
  static long token(int steps, const Task& t) { return 1000L * t.action.microbatch + steps; }
  long& of(Region region, const Task& t) {
    return buffers_[static_cast<std::size_t>(region)](t.action.chunk, t.action.microbatch);
  }
  std::tuple<bool, int, int> message(const Task& t, int to) const {
    return {is_forward_transfer(t.action.op), to, t.action.microbatch};
  }
  bool ready(const Task& t) const {
    const bool waits = t.action.op == Op::wait_recv_forward || t.action.op == Op::wait_recv_backward;
    return t.op != TaskOp::transfer || !waits || mail_.count(message(t, stage(t))) > 0;
  }

  void run(const Task& t) {
    if (t.op == TaskOp::load_batch) {
      of(Region::saved, t) = garbage;
      if (stage(t) == 0) of(Region::input, t) = token(0, t);
    }
    if (is_pass_of_block(t, share_)) run_block(t);
    if (t.op == TaskOp::transfer) transfer(t);
    if (t.op == TaskOp::local_copy) {
      const bool up = is_forward_transfer(t.action.op);
      long& target = buffers_[static_cast<std::size_t>(up ? Region::input : Region::output_gradient)](
          t.buffer, t.action.microbatch);
      target = of(up ? Region::output : Region::input_gradient, t);
    }
  }

  void run_block(const Task& t) {
    const bool first = stage(t) == 0, last = stage(t) + 1 == s_.stages();
    const long arrived = token(stage(t), t), back = token(2 * s_.stages() - stage(t) - 1, t);
    EXPECT_EQ(of(Region::input, t), arrived);
    switch (t.op) {
      case TaskOp::forward:
        of(Region::saved, t) = arrived;
        if (!last) of(Region::output, t) = arrived + 1;
        return;
      case TaskOp::recompute:
        if (!t.fused()) of(Region::left, t) = garbage;
        return;
      case TaskOp::backward_input:
        EXPECT_EQ(of(Region::saved, t), arrived);
        if (!last) {
          EXPECT_EQ(of(Region::output_gradient, t), back);
        }
        if (!t.fused()) of(Region::left, t) = back;
        if (!first) of(Region::input_gradient, t) = back + 1;
        return;
      case TaskOp::backward_weight:
        EXPECT_EQ(of(Region::saved, t), arrived);
        if (!last) {
          EXPECT_EQ(of(Region::output_gradient, t), back);
        }
        if (!t.fused()) {
          EXPECT_EQ(of(Region::left, t), back);
        }
        ++weights_[at(stage(t))];
        return;
      default:
        return;
    }
  }

  void transfer(const Task& t) {
    const bool up = is_forward_transfer(t.action.op);
    const Region sent = up ? Region::output : Region::input_gradient;
    const Region received = up ? Region::input : Region::output_gradient;
    const long value = token(up ? stage(t) + 1 : 2 * s_.stages() - stage(t), t);
    if (is_send_post(t.action.op)) mail_[message(t, stage(t) + (up ? 1 : -1))] = of(sent, t);
    if (is_send(t.action.op)) {
      EXPECT_EQ(of(sent, t), value);
    }
    if (t.action.op == Op::post_recv_forward || t.action.op == Op::post_recv_backward) of(received, t) = garbage;
    if (t.action.op == Op::wait_recv_forward || t.action.op == Op::wait_recv_backward)
      of(received, t) = mail_.at(message(t, stage(t)));
  }

  const Schedule& s_;
  RankShare share_;
  std::vector<Task> tasks_;
  SlotTables tables_;
  Mail& mail_;
  std::vector<int>& weights_;
  std::vector<Buffers> buffers_;
  std::size_t next_ = 0;
};

void run(const Schedule& schedule) {
  Mail mail;
  std::vector<int> weights(at(schedule.stages()), 0);
  std::vector<std::unique_ptr<Runner>> runners;
  for (int rank = 0; rank < schedule.ranks; ++rank)
    runners.push_back(std::make_unique<Runner>(schedule, rank, mail, weights));
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& runner : runners) moved |= runner->advance();
  }
  for (const auto& runner : runners) EXPECT_TRUE(runner->finished());
  for (const int count : weights) EXPECT_EQ(count, schedule.microbatches);
}

SlotTables tables_of(const Schedule& schedule, int rank) {
  return assign_slots(step_tasks(one_block_share(schedule, rank), schedule, Recompute::none), schedule.chunks_per_rank,
                      schedule.microbatches);
}
int total(const SlotTables& tables, Region region) {
  int sum = 0;
  for (const int count : tables[static_cast<std::size_t>(region)].counts) sum += count;
  return sum;
}

TEST(Slots, NothingIsOverwrittenBeforeItsLastReader) {
  for (const ScheduleRequest& request : with_pairs(legal_requests(5, 11, 3))) {
    run(lower(generate(request)));
    ASSERT_FALSE(HasFailure()) << text_of(request);
  }
}

TEST(Slots, OneStageNeedsOneOfEach) {
  for (const ScheduleName name : {ScheduleName::one_f_one_b, ScheduleName::zero_bubble}) {
    const SlotTables tables = tables_of(lower(generate({name, 1, 1, 7})), 0);
    for (const Region region : {Region::saved, Region::input}) EXPECT_EQ(total(tables, region), 1);
    EXPECT_EQ(total(tables, Region::left), 0);  // B and W are one action
  }
}

TEST(Slots, SavedActivationsAreTheMicrobatchesInFlight) {
  for (const ScheduleRequest& request : with_pairs(legal_requests(6, 13, 1))) {
    const Schedule schedule = lower(generate(request));
    if (schedule.chunks_per_rank > 1) continue;  // each chunk has slots of its own
    for (int rank = 0; rank < schedule.ranks; ++rank)
      EXPECT_EQ(total(tables_of(schedule, rank), Region::saved), microbatches_in_flight(schedule, rank))
          << text_of(request);
  }
}

TEST(Slots, ZeroBubbleKeepsWhatWReadsUntilW) {
  const Schedule schedule = lower(generate({ScheduleName::zero_bubble, 4, 1, 8}));
  for (int rank = 0; rank < 4; ++rank) {
    const SlotTables tables = tables_of(schedule, rank);
    EXPECT_EQ(total(tables, Region::saved), 4);
    EXPECT_EQ(total(tables, Region::left), rank == 0 ? 0 : rank + 1);
  }
}

// Rank r of the V in pairs: 2 pp - r places for its first chunk and r + 1 for its second; one W of a chunk waits at a
// time, where another rank waits for B.
TEST(Slots, TheVInPairsHoldsOneChunkMore) {
  for (const int pp : {1, 2, 4, 7}) {
    const Schedule schedule = lower(generate({ScheduleName::zb_v, pp, 1, 2 * pp + 3, 0, true}));
    for (int rank = 0; rank < pp; ++rank) {
      const SlotTables tables = tables_of(schedule, rank);
      const auto counts = [&](Region region) { return tables[static_cast<std::size_t>(region)].counts; };
      EXPECT_EQ(counts(Region::saved), (std::vector{2 * pp - rank, rank + 1})) << pp << " " << rank;
      EXPECT_EQ(counts(Region::left), (std::vector{rank > 0 ? 1 : 0, rank + 1 < pp ? 1 : 0})) << pp << " " << rank;
    }
  }
}

}  // namespace
}  // namespace forge
