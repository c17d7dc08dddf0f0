#include "sleeping_stages.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>

#include "../schedule/one_block.hpp"
#include "comm/thread_communicator.hpp"
#include "core/error.hpp"
#include "parallel/transfers.hpp"
#include "plan/slots.hpp"

namespace forge {

namespace {

using Clock = std::chrono::steady_clock;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// One rank of the pipeline: replays its tasks, with one block a stage.
class SleepingRank {
 public:
  SleepingRank(const Schedule& schedule, const SleepTimes& times, Communicator& pipeline)
      : schedule_(schedule),
        times_(times),
        share_(one_block_share(schedule, pipeline.rank())),
        tasks_(step_tasks(share_, schedule, Recompute::none)),
        tables_(assign_slots(tasks_, schedule.chunks_per_rank, schedule.microbatches)),
        transfers_(pipeline) {
    for (const SlotTable& table : tables_) {
      regions_.emplace_back();
      for (const int count : table.counts)
        regions_.back().emplace_back(at(count), std::vector<double>(at(static_cast<int>(times.elements))));
    }
  }

  void step() {
    done_.clear();
    for (const Task& task : tasks_) run(task);
    transfers_.finish();
  }
  const std::vector<Action>& done() const { return done_; }

 private:
  using Data = std::vector<double>;

  void run(const Task& t) {
    if (t.op == TaskOp::transfer) return transfer(t);
    if (t.op == TaskOp::local_copy) {
      const bool up = is_forward_transfer(t.action.op);
      data(up ? Region::input : Region::output_gradient, t.buffer, t.action.microbatch) =
          of(up ? Region::output : Region::input_gradient, t.action);
    }
    if (!is_pass_of_block(t, share_)) return;
    const Action& a = t.action;
    check_inputs(t);
    const Op op = t.op == TaskOp::forward          ? Op::forward
                  : t.op == TaskOp::backward_input ? Op::backward_input
                                                   : Op::backward_weight;
    std::this_thread::sleep_for(times_.of(op));
    check_inputs(t);
    if (op == Op::forward && stage(a) + 1 < schedule_.stages()) write(of(Region::output, a), a, 1);
    if (op == Op::backward_input && stage(a) > 0) write(of(Region::input_gradient, a), a, -1);
    if (op != Op::backward_input || !t.fused()) done_.push_back(a);
  }

  void transfer(const Task& t) {
    const Action& a = t.action;
    if (!is_post(a.op)) return transfers_.run(compute_, a);
    const Region region = is_forward_transfer(a.op)
                              ? (is_send_post(a.op) ? Region::output : Region::input)
                              : (is_send_post(a.op) ? Region::input_gradient : Region::output_gradient);
    transfers_.run(compute_, a, of(region, a).data(), times_.elements, DType::f64);
  }

  int stage(const Action& a) const { return schedule_.stage_at(share_.pp_rank, a.chunk); }
  double stamp(int stage, int microbatch, int sign) const { return sign * (schedule_.index(stage, microbatch) + 1); }
  Data& data(Region region, int chunk, int m) {
    const int slot = tables_[static_cast<std::size_t>(region)].at(chunk, m);
    require(slot >= 0, "a task reads a region that its microbatch doesn't keep");
    return regions_[static_cast<std::size_t>(region)][at(chunk)][at(slot)];
  }
  Data& of(Region region, const Action& a) { return data(region, a.chunk, a.microbatch); }

  void write(Data& data, const Action& a, int sign) {
    std::fill(data.begin(), data.end(), stamp(stage(a), a.microbatch, sign));
  }
  void check(const Data& data, const Action& a, double wanted) const {
    if (std::any_of(data.begin(), data.end(), [&](double x) { return x != wanted; }))
      throw Error("rank " + std::to_string(share_.pp_rank) + ", " + text_of(a) +
                  ": read what another microbatch or stage wrote");
  }
  void check_inputs(const Task& t) {
    const Action& a = t.action;
    if (stage(a) > 0) check(of(Region::input, a), a, stamp(stage(a) - 1, a.microbatch, 1));
    if (t.op != TaskOp::forward && stage(a) + 1 < schedule_.stages())
      check(of(Region::output_gradient, a), a, stamp(stage(a) + 1, a.microbatch, -1));
  }

  const Schedule& schedule_;
  const SleepTimes& times_;
  RankShare share_;
  std::vector<Task> tasks_;
  SlotTables tables_;
  std::vector<std::vector<std::vector<Data>>> regions_;  // by region, chunk, slot
  Stream compute_;
  Transfers transfers_;
  std::vector<Action> done_;
};

}  // namespace

std::chrono::microseconds SleepTimes::of(Op op) const {
  switch (op) {
    case Op::forward:
      return forward;
    case Op::backward_input:
      return backward_input;
    case Op::backward_weight:
      return backward_weight;
    case Op::backward:
      return backward_input + backward_weight;
    default:
      return std::chrono::microseconds(0);
  }
}

SleepRun run_sleeping(const Schedule& lowered, const SleepTimes& times, int steps) {
  require(lowered.lowered, "stages execute lowered schedules");
  SleepRun run;
  run.done.resize(at(lowered.ranks));
  std::mutex mutex;
  run_ranks(lowered.ranks, [&](Communicator& world) {
    SleepingRank rank(lowered, times, world);
    double seconds = 0;
    for (int step = 0; step < steps; ++step) {
      world.barrier();
      const auto start = Clock::now();
      rank.step();
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    }
    world.barrier();  // the others may still send
    const std::lock_guard lock(mutex);
    run.done[at(world.rank())] = rank.done();
    run.seconds = std::max(run.seconds, seconds);
    for (const Action& action : rank.done()) run.asleep += std::chrono::duration<double>(times.of(action.op)).count();
  });
  return run;
}

}  // namespace forge
