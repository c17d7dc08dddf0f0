#include "sleeping_stages.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>

#include "comm/thread_communicator.hpp"
#include "core/error.hpp"
#include "parallel/transfers.hpp"
#include "schedule/interpret.hpp"
#include "schedule/slots.hpp"

namespace forge {

namespace {

using Clock = std::chrono::steady_clock;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// The activations of one lifetime on one rank.
class Edge {
 public:
  Edge(const Schedule& schedule, int rank, Lifetime lifetime, std::int64_t elements)
      : table_(assign_slots(schedule, rank, lifetime)) {
    for (const int count : table_.counts)
      data_.emplace_back(at(count), std::vector<double>(at(static_cast<int>(elements))));
  }
  std::vector<double>& of(int chunk, int m) {
    const int slot = table_.at(chunk, m);
    require(slot >= 0, "a schedule reads an activation that it doesn't keep");
    return data_[at(chunk)][at(slot)];
  }

 private:
  SlotTable table_;
  std::vector<std::vector<std::vector<double>>> data_;  // by chunk, slot
};

// One rank of the pipeline: what schedule/interpret.hpp calls.
class SleepingRank {
 public:
  SleepingRank(const Schedule& schedule, const SleepTimes& times, Communicator& pipeline)
      : schedule_(schedule),
        times_(times),
        rank_(pipeline.rank()),
        transfers_(pipeline),
        input_(schedule, rank_, Lifetime::input, times.elements),
        output_(schedule, rank_, Lifetime::output, times.elements),
        output_gradient_(schedule, rank_, Lifetime::output_gradient, times.elements),
        input_gradient_(schedule, rank_, Lifetime::input_gradient, times.elements) {}

  void step() {
    done_.clear();
    execute_rank(schedule_, rank_, *this);
    transfers_.finish();
  }
  const std::vector<Action>& done() const { return done_; }

  void forward(const Action& a) {
    check_input(a);
    sleep(a);
    check_input(a);
    if (stage(a) + 1 < schedule_.stages()) write(output_.of(a.chunk, a.microbatch), a, 1);
  }
  void backward_input(const Action& a) {
    check_input(a);
    check_output_gradient(a);
    sleep(a);
    check_output_gradient(a);
    if (stage(a) > 0) write(input_gradient_.of(a.chunk, a.microbatch), a, -1);
  }
  void backward_weight(const Action& a) {
    check_input(a);
    check_output_gradient(a);
    sleep(a);
    check_input(a);
    check_output_gradient(a);
  }
  void backward(const Action& a) { backward_input(a); }
  void recompute(const Action& a) { sleep(a); }
  void begin_group(const Action&) { transfers_.begin_group(); }
  void end_group(const Action&) { transfers_.end_group(); }
  void post_send(const Action& a) {
    const auto& data = (is_forward_transfer(a.op) ? output_ : input_gradient_).of(a.chunk, a.microbatch);
    transfers_.post_send(compute_, a, data.data(), times_.elements, DType::f64);
  }
  void post_recv(const Action& a) {
    auto& data = (is_forward_transfer(a.op) ? input_ : output_gradient_).of(a.chunk, a.microbatch);
    transfers_.post_receive(compute_, a, data.data(), times_.elements, DType::f64);
  }
  void wait_send(const Action& a) { transfers_.wait(compute_, a); }
  void wait_recv(const Action& a) { transfers_.wait(compute_, a); }
  void hand_over(const Action& a) {
    const bool up = is_forward_transfer(a.op);
    const int reader = schedule_.places[at(stage(a) + (up ? 1 : -1))].chunk;
    if (up)
      input_.of(reader, a.microbatch) = output_.of(a.chunk, a.microbatch);
    else
      output_gradient_.of(reader, a.microbatch) = input_gradient_.of(a.chunk, a.microbatch);
  }
  void gather_parameters(const Action&) {}
  void wait_parameters(const Action&) {}
  void release_parameters(const Action&) {}
  void reduce_gradients(const Action&) {}
  void wait_gradients(const Action&) {}

 private:
  int stage(const Action& a) const { return schedule_.stage_at(rank_, a.chunk); }
  double stamp(int stage, int microbatch, int sign) const { return sign * (schedule_.index(stage, microbatch) + 1); }

  void write(std::vector<double>& data, const Action& a, int sign) {
    std::fill(data.begin(), data.end(), stamp(stage(a), a.microbatch, sign));
  }
  void check(const std::vector<double>& data, const Action& a, double wanted) const {
    if (std::any_of(data.begin(), data.end(), [&](double x) { return x != wanted; }))
      throw Error("rank " + std::to_string(rank_) + ", " + text_of(a) +
                  ": read what another microbatch or stage wrote");
  }
  void check_input(const Action& a) {
    if (stage(a) > 0) check(input_.of(a.chunk, a.microbatch), a, stamp(stage(a) - 1, a.microbatch, 1));
  }
  void check_output_gradient(const Action& a) {
    if (stage(a) + 1 < schedule_.stages())
      check(output_gradient_.of(a.chunk, a.microbatch), a, stamp(stage(a) + 1, a.microbatch, -1));
  }
  void sleep(const Action& a) {
    std::this_thread::sleep_for(times_.of(a.op));
    done_.push_back(a);
  }

  const Schedule& schedule_;
  const SleepTimes& times_;
  int rank_;
  Stream compute_;
  Transfers transfers_;
  Edge input_, output_, output_gradient_, input_gradient_;
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
