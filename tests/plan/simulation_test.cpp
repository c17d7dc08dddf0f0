#include "predict/simulation.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "../equivalence/models.hpp"
#include "config/schedule_name.hpp"
#include "core/to_size.hpp"
#include "layout/stage.hpp"
#include "plan/setup.hpp"
#include "predict/step_program.hpp"
#include "schedule/from_deck.hpp"
#include "schedule/lower.hpp"
#include "schedule/schedule_times.hpp"

namespace forge::test {
namespace {

using Kind = Instruction::Kind;

Instruction run(Lane lane, double seconds, double host = 0) {
  Instruction i{Kind::run, lane};
  i.seconds = seconds;
  i.host = host;
  return i;
}
Instruction follow(Lane lane, Lane other) {
  Instruction i{Kind::follow, lane};
  i.other = other;
  return i;
}
Instruction mark(Kind kind, Lane lane, std::int64_t event = 0) {
  Instruction i{kind, lane};
  i.event = event;
  return i;
}
Instruction meet(Lane lane, double seconds, std::int64_t meeting, int members) {
  Instruction i{Kind::meet, lane};
  i.seconds = seconds;
  i.event = meeting;
  i.members = members;
  return i;
}

double seconds_of(const std::vector<std::vector<Instruction>>& programs, const SimulatedMachine& machine = {}) {
  return simulate(programs, machine).seconds;
}

// What the compute stream of a rank did last.
Span last_of(const Simulated& done, std::size_t rank) {
  Span last;
  for (const Span& span : done.ranks[rank])
    if (span.lane == Lane::compute) last = span;
  return last;
}

TEST(Simulation, WorkOfAStreamFollowsAndStreamsRunSideBySide) {
  EXPECT_DOUBLE_EQ(seconds_of({{run(Lane::compute, 2), run(Lane::compute, 3)}}), 5);
  EXPECT_DOUBLE_EQ(seconds_of({{run(Lane::compute, 2), run(Lane::gradients, 3)}}), 3);
  // The gradients' stream begins behind the first, and nothing waits for it.
  EXPECT_DOUBLE_EQ(seconds_of({{run(Lane::compute, 2), follow(Lane::gradients, Lane::compute), run(Lane::gradients, 3),
                                run(Lane::compute, 1)}}),
                   5);
  EXPECT_DOUBLE_EQ(seconds_of({{run(Lane::compute, 2), follow(Lane::gradients, Lane::compute), run(Lane::gradients, 3),
                                follow(Lane::compute, Lane::gradients), run(Lane::compute, 1)}}),
                   6);
}

TEST(Simulation, AnEventIsWhatWasGivenBeforeItsRecord) {
  const std::vector<Instruction> program{run(Lane::parameters, 2),           mark(Kind::record, Lane::parameters, 7),
                                         run(Lane::parameters, 5),           run(Lane::compute, 1),
                                         mark(Kind::wait, Lane::compute, 7), run(Lane::compute, 1)};
  const Simulated done = simulate({program}, {});
  EXPECT_DOUBLE_EQ(done.seconds, 7);
  EXPECT_DOUBLE_EQ(done.busy[0], 2);
  const Span last = last_of(done, 0);
  EXPECT_DOUBLE_EQ(last.start, 2);
  EXPECT_DOUBLE_EQ(last.waited, 1);
  EXPECT_EQ(last.waited_for, Lane::parameters);
  EXPECT_DOUBLE_EQ(seconds_of({{mark(Kind::wait, Lane::compute, 1), run(Lane::compute, 1)}}), 1) << "before any record";
}

TEST(Simulation, TheHostGivesOneAfterTheOther) {
  // Three launches of 1 s each, and the last kernel.
  EXPECT_DOUBLE_EQ(seconds_of({{run(Lane::compute, 0.5, 1), run(Lane::compute, 0.5, 1), run(Lane::compute, 0.5)}}),
                   2.5);
  EXPECT_DOUBLE_EQ(seconds_of({{run(Lane::compute, 4), mark(Kind::host_wait, Lane::compute), run(Lane::gradients, 1)}}),
                   5);
  SimulatedMachine host;
  host.host_computes = true;
  EXPECT_DOUBLE_EQ(seconds_of({{run(Lane::compute, 4), run(Lane::gradients, 1)}}, host), 5);
}

TEST(Simulation, RanksMeet) {
  const std::vector<std::vector<Instruction>> programs{{run(Lane::compute, 1), meet(Lane::compute, 2, 5, 2)},
                                                       {run(Lane::compute, 4), meet(Lane::compute, 2, 5, 2)}};
  const Simulated done = simulate(programs, {});
  EXPECT_DOUBLE_EQ(done.seconds, 6);
  EXPECT_DOUBLE_EQ(last_of(done, 0).waited, 3);
  EXPECT_THROW(seconds_of({{meet(Lane::compute, 2, 5, 2)}, {}}), Error);
}

// Two ranks that send and receive in other orders: alone they would wait for each other, in a group they don't.
TEST(Simulation, AGroupRunsAtTheSameTime) {
  const auto l = Lane::transfers;
  const std::vector<Instruction> a{meet(l, 1, 1, 2), meet(l, 2, 2, 2)}, b{meet(l, 2, 2, 2), meet(l, 1, 1, 2)};
  EXPECT_THROW(seconds_of({a, b}), Error);
  const auto grouped = [&](std::vector<Instruction> list) {
    list.insert(list.begin(), mark(Kind::begin_group, l));
    list.push_back(mark(Kind::record, l, 9));
    list.push_back(mark(Kind::end_group, l));
    list.push_back(mark(Kind::wait, Lane::compute, 9));
    list.push_back(run(Lane::compute, 1));
    return list;
  };
  EXPECT_DOUBLE_EQ(seconds_of({grouped(a), grouped(b)}), 3);
}

TEST(Simulation, StreamsShareCores) {
  SimulatedMachine two;
  two.cores = 2;
  const std::vector<Instruction> one{run(Lane::compute, 2)};
  EXPECT_DOUBLE_EQ(seconds_of({one, one}, two), 2);
  EXPECT_DOUBLE_EQ(seconds_of({one, one, one, one}, two), 4);
  // Three for a second of work each take 1.5 s; then one is alone.
  EXPECT_DOUBLE_EQ(seconds_of({one, {run(Lane::compute, 1)}, {run(Lane::compute, 1)}}, two), 2.5);
  two.per_stream = 4;  // each stands for four ranks
  EXPECT_DOUBLE_EQ(seconds_of({one}, two), 4);
}

using enum Link;

// Computes so long, and then has a collective that needs each of the links for its seconds.
Instruction send(Lane lane, Wire wire, std::initializer_list<Link> links, double behind = 0) {
  for (const Link link : links) wire.links[to_size(link)] = wire.seconds;
  Instruction i = run(lane, wire.before + wire.latency + wire.seconds + behind);
  i.wires = std::make_shared<Wires>(Wires{wire});
  return i;
}

TEST(Simulation, LinksAreShared) {
  const Instruction gather = send(Lane::parameters, {.seconds = 2}, {nic_out, nic_in}),
                    sum = send(Lane::gradients, {.seconds = 2}, {nic_out, nic_in});
  EXPECT_DOUBLE_EQ(seconds_of({{gather}}), 2);
  EXPECT_DOUBLE_EQ(seconds_of({{gather, sum}}), 4);
  EXPECT_DOUBLE_EQ(seconds_of({{gather}, {sum}}), 2) << "of two ranks";
  EXPECT_DOUBLE_EQ(seconds_of({{gather, send(Lane::gradients, {.seconds = 2}, {nvlink_out, nvlink_in})}}), 2);
  SimulatedMachine processors;
  processors.shares_links = false;
  EXPECT_DOUBLE_EQ(seconds_of({{gather, sum}}, processors), 2);
  // Both directions are links of their own, and a gather takes both.
  const Instruction out = send(Lane::transfers, {.seconds = 2}, {nic_out}),
                    in = send(Lane::gradients, {.seconds = 2}, {nic_in});
  EXPECT_DOUBLE_EQ(seconds_of({{out, in}}), 2);
  EXPECT_DOUBLE_EQ(seconds_of({{gather, out, in}}), 4);
}

// A rank's latencies need no link, and aren't longer for it; nor do its computations.
TEST(Simulation, LatencyIsNotStretched) {
  const auto nic = {nic_out, nic_in};
  const auto sum = [&](double latency) { return send(Lane::gradients, {.latency = latency, .seconds = 2}, nic); };
  EXPECT_DOUBLE_EQ(seconds_of({{send(Lane::parameters, {.latency = 3, .seconds = 2}, nic), sum(3)}}), 7);
  EXPECT_DOUBLE_EQ(seconds_of({{send(Lane::parameters, {.latency = 3, .seconds = 2}, nic), sum(1)}}), 5);
  const Simulated done =
      simulate({{send(Lane::compute, {.before = 3, .seconds = 1}, nic, 2), sum(0), sum(0)}}, SimulatedMachine{});
  EXPECT_DOUBLE_EQ(done.seconds, 7) << "the compute stream's collective runs when its turn comes";
  EXPECT_DOUBLE_EQ(last_of(done, 0).slowed, 1);
}

// An operation runs at its slowest link's share, and leaves the others what it can't take.
TEST(Simulation, TheSlowestLinkDecides) {
  Instruction over_nodes = send(Lane::parameters, {.seconds = 4}, {nic_out, nic_in});
  Wires wires = *over_nodes.wires;
  wires[0].links[to_size(nvlink_out)] = 1;
  over_nodes.wires = std::make_shared<Wires>(wires);
  const Instruction inside = send(Lane::gradients, {.seconds = 3}, {nvlink_out, nvlink_in});
  // The first needs a quarter of NVLink, and both get 0.8 of what they have alone.
  const Simulated done = simulate({{over_nodes, inside}}, {});
  ASSERT_EQ(done.ranks[0].size(), 2u);
  EXPECT_NEAR(done.ranks[0][0].end, 3.75, 1e-12);
  EXPECT_NEAR(done.seconds, 4.75, 1e-12);
  // With a rival on the network it is at a half, takes an eighth of NVLink, and the one inside gets the rest.
  const Instruction rival = send(Lane::transfers, {.seconds = 4}, {nic_out, nic_in});
  EXPECT_NEAR(simulate({{over_nodes, inside, rival}}, {}).ranks[0][0].end, 3 / 0.875, 1e-12);
}

TEST(Simulation, CollectivesSlowKernelsDown) {
  SimulatedMachine machine;
  machine.overlap = 0.5;
  // 1 s of 2 is done when the other stream has ended, after 2 s.
  EXPECT_DOUBLE_EQ(seconds_of({{run(Lane::compute, 2), run(Lane::gradients, 2)}}, machine), 3);
  // Not the collectives of its own.
  const Instruction own = send(Lane::compute, {.before = 1, .seconds = 2}, {nic_out});
  EXPECT_DOUBLE_EQ(simulate({{own, run(Lane::gradients, 9)}}, machine).busy[0], 4);
}

// Of all schedules, the simulation of the executor's tasks takes as long as the schedule's own timeline, where a
// layer's F, B and W take one second each and nothing else takes time; in pairs, too.
TEST(Simulation, AgreesWithTimelines) {
  int compared = 0;
  for (const ScheduleName name : {ScheduleName::gpipe, ScheduleName::one_f_one_b, ScheduleName::interleaved,
                                  ScheduleName::zero_bubble, ScheduleName::zb_v}) {
    for (const int which : {4, 8, 12, -4, -8, -12}) {  // microbatches; below 0: in pairs
      const int microbatches = std::abs(which);
      if (which < 0 && !has_pairs(name)) continue;
      Deck deck = test_models().front().deck;
      deck.model.layers = 8;
      deck.mesh.pp = 4;
      deck.mesh.dp_shard = 1;
      deck.schedule.name = name;
      deck.schedule.virtual_stages = name == ScheduleName::interleaved || name == ScheduleName::zb_v ? 2 : 1;
      deck.train.global_batch_sequences = microbatches;
      deck.train.overlap = which < 0 ? Overlap::pairs : Overlap::none;
      const CostOf cost = [&](const RankShare& share, const Task& task) {
        TaskCost c;
        if (task.layer < 0 || share.layers[to_size(task.action.chunk)][to_size(task.layer)].kind != LayerKind::block)
          return c;
        const bool pass =
            task.op == TaskOp::forward || task.op == TaskOp::backward_input || task.op == TaskOp::backward_weight;
        c.of(CostPart::products) = pass ? 1 : 0;
        return c;
      };
      std::vector<std::vector<Instruction>> programs;
      RunSetup setup = make_setup(deck);
      for (int r = 0; r < 4; ++r) {
        const RankShare share = rank_share(setup.model_share(), r);
        programs.push_back(
            step_program(share, step_tasks(share, setup.schedule, Recompute::none), setup.schedule, 4, cost));
      }
      const Schedule plain = schedule_of(deck, 4, microbatches);
      const double layers = 8.0 / plain.stages();
      EXPECT_NEAR(seconds_of(programs), timeline(plain, uniform_durations(layers, layers, layers)).makespan, 1e-9)
          << plain.name << ", " << which;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 15 + 12);
}

}  // namespace
}  // namespace forge::test
