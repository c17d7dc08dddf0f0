#include <cstdio>
#include <functional>
#include <memory>

#include "app/device_fit.hpp"
#include "app/job.hpp"
#include "app/outputs.hpp"
#include "app/replayed_stages.hpp"
#include "app/verbs.hpp"
#include "comm/replay_communicator.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/json.hpp"
#include "core/median.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "plan/placement.hpp"
#include "plan/task_segments.hpp"
#include "plan/traffic.hpp"
#include "predict/machine.hpp"
#include "train/job_report.hpp"
#include "train/replay.hpp"

namespace forge {

namespace {

void refuse_what_is_no_replay(const CommandLine& line, const Deck& deck, const World& here) {
  if (here.size() > 1)
    throw BadInput("forge replay runs one rank alone, and a launcher started " + std::to_string(here.size()) +
                   " processes; legal: one process");
  if (const std::int64_t ranks = ranks_of(deck.mesh); line.rank >= ranks)
    throw BadInput("--rank " + std::to_string(line.rank) + ": the job has " + counted(ranks, "rank") +
                   "; legal: 0 to " + std::to_string(ranks - 1));
}

// Parameters are drawn, and nothing is saved, validated or sampled.
Deck without_files(Deck deck) {
  deck.model.load_weights = false;
  deck.checkpoint = {};
  return deck;
}

// Refuses what this device lacks for this rank alone.
void prepare(RunSetup& setup, const World& here) {
  choose_device(here);
  setup = on_devices(std::move(setup), device_info().capability);
  refuse_what_the_device_lacks(setup);
  start_threads_of(setup.deck, here);
  const std::optional<std::size_t> free = free_device_memory();
  if (!free) return refuse_what_nodes_lack(setup, RunKind::training, here);
  if (const std::size_t needed = planned_memory(setup, RunKind::training).total(); needed > *free)
    throw BadInput("rank " + std::to_string(setup.rank) + " doesn't fit: " + format_bytes(needed) + " planned, of " +
                   format_bytes(*free) + " that are free on the GPU; legal: a larger GPU, or a deck that needs less");
}

std::shared_ptr<ReplayWire> wire_of(const CommandLine& line, const RunSetup& setup,
                                    const std::shared_ptr<const Machine>& machine) {
  if (!machine) return std::make_shared<ReplayWire>(line.wire == "copy" ? WireKind::copy : WireKind::none);
  const auto places = placements(setup.mesh, setup.rank, groups_of(setup), machine->ranks_per_node);
  return std::make_shared<ReplayWire>(
      WireKind::time,
      [machine, places](const Sent& call) { return collective_seconds(*machine, call, places[to_size(call.group)]); },
      line.blocks);
}

// What the plan says that the rank gives to its device, and reads back of experts' counts, in a step.
struct PlannedWork {
  std::int64_t launches = 0, waits = 0;
};
PlannedWork planned_work(const RunSetup& setup, const std::vector<Task>& tasks) {
  PlannedWork work;
  for (const Task& task : tasks) {
    const Segments list = segments_of(setup.buffers, setup.share, task);
    work.launches += list.launches();
    work.waits += list.count_reads;
  }
  return work;
}

std::int64_t total(const std::vector<std::pair<std::string, Traffic>>& sent) {
  std::int64_t bytes = 0;
  for (const auto& [group, traffic] : sent) bytes += traffic.total_bytes();
  return bytes;
}

// Medians over the measured steps.
struct Replayed {
  double seconds = 0;
  Gaps gaps;
  std::vector<TaskTime> times;
  std::int64_t waits = 0, sent = 0, planned_sent = 0;
  PlannedWork work;
  std::size_t peak = 0, planned_peak = 0;
};

double median_of(std::size_t count, const std::function<double(std::size_t)>& value) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(value(i));
  return median(values);
}

template <class T>
Replayed measure(Job<T>& job, ReplayWire& wire, int steps) {
  const RunSetup& setup = job.setup;
  Replay<T> replay(*job.session, wire);
  replay.step();
  std::vector<ReplayedStep> done;
  for (int i = 0; i < steps; ++i) done.push_back(replay.step());
  const std::vector<Task> tasks = replay.tasks();
  std::vector<std::vector<TaskTime>> times;
  std::vector<Gaps> gaps;
  for (const ReplayedStep& step : done) {
    times.push_back(task_times(setup, tasks, step.spans));
    gaps.push_back(gaps_of(step.spans));
  }
  Replayed result;
  result.seconds = median_of(done.size(), [&](std::size_t i) { return done[i].seconds; });
  result.gaps.seconds = median_of(gaps.size(), [&](std::size_t i) { return gaps[i].seconds; });
  result.gaps.longest = median_of(gaps.size(), [&](std::size_t i) { return gaps[i].longest; });
  result.times = times.front();  // every step has the same tasks
  for (std::size_t r = 0; r < result.times.size(); ++r) {
    result.times[r].seconds = median_of(times.size(), [&](std::size_t i) { return times[i].at(r).seconds; });
    result.times[r].collectives = median_of(times.size(), [&](std::size_t i) { return times[i].at(r).collectives; });
  }
  result.sent = total(done.back().sent);
  result.planned_sent = total(plan_traffic(setup.buffers, setup.spec, setup.mesh, setup.share, setup.schedule));
  result.waits = done.back().waits;
  result.work = planned_work(setup, tasks);
  result.peak = job.session->arena().high_water();
  result.planned_peak = job.memory.total();
  return result;
}

// A second and rank.
double tokens_per_second(const RunSetup& setup, double seconds) {
  return static_cast<double>(setup.tokens_per_step()) / setup.mesh.world() / seconds;
}

std::string tokens_text(const RunSetup& setup, double seconds) {
  if (setup.mesh.pp > 1)
    return "of a pipeline by forge plan --replayed, from --json of a rank of the first stage, of one between, and of "
           "the last";
  return formatted("%.1f a second and rank, where all ranks are alike and nothing waits for another",
                   tokens_per_second(setup, seconds));
}

std::string against(std::uint64_t measured, std::uint64_t planned, const std::string& why = "") {
  return format_bytes(measured) +
         (measured == planned ? ", as planned" : " (" + format_bytes(planned) + " are planned" + why + ")");
}

std::string text_of(const CommandLine& line, const RunSetup& setup, const Replayed& r) {
  std::string text =
      formatted("rank %d of %d alone, pipeline stage %d of %d, wire %s, %s\n", setup.rank, setup.mesh.world(),
                setup.share.pp_rank, setup.mesh.pp, line.wire.c_str(), device_info().name);
  text += titled_line("step", formatted("%.6g s, the median of %d behind a first one", r.seconds, line.steps));
  text += titled_line("tokens", tokens_text(setup, r.seconds));
  text += titled_line("gaps", formatted("%.6g s in which the compute stream has nothing to do, %.6g s the longest",
                                        r.gaps.seconds, r.gaps.longest));
  text += titled_line(
      "launches",
      std::to_string(r.work.launches) + " planned in layers; " + std::to_string(r.waits) +
          " waits of the host for experts' counts" +
          (r.waits == r.work.waits ? ", as planned" : " (" + std::to_string(r.work.waits) + " are planned)"));
  text += titled_line("peak", against(r.peak, r.planned_peak));
  text += titled_line("sent", against(static_cast<std::uint64_t>(r.sent), static_cast<std::uint64_t>(r.planned_sent),
                                      setup.spec.E() > 0 && !setup.deck.model.forced_balance
                                          ? " where routers load all experts alike: model.forced_balance"
                                          : ""));
  text += formatted("\n  %-18s %-22s %8s %12s %14s %7s\n", "task", "of", "calls", "seconds", "collectives", "share");
  for (const TaskTime& t : r.times)
    text += formatted("  %-18s %-22s %8lld %12.6f %14.6f %5.1f %%\n", t.task.c_str(), t.of.c_str(),
                      static_cast<long long>(t.calls), t.seconds, t.collectives, 100 * t.seconds / r.seconds);
  return text;
}

std::string json_text(const CommandLine& line, const Deck& deck, const RunSetup& setup, const Replayed& r) {
  JsonLine json;
  json.add("deck", deck_hash(deck));
  json.add("rank", setup.rank).add("ranks", setup.mesh.world()).add("pp_rank", setup.share.pp_rank);
  json.add("wire", line.wire).add("machine", line.machine).add("device", std::string_view(device_info().name));
  json.add("steps", line.steps).add("step_seconds", r.seconds);
  if (setup.mesh.pp == 1) json.add("tokens_per_second_per_rank", tokens_per_second(setup, r.seconds));
  json.add("gap_seconds", r.gaps.seconds).add("longest_gap_seconds", r.gaps.longest);
  json.add("planned_launches", r.work.launches).add("waits", r.waits).add("planned_waits", r.work.waits);
  json.add("peak_bytes", r.peak).add("planned_peak_bytes", r.planned_peak);
  json.add("sent_bytes", r.sent).add("planned_sent_bytes", r.planned_sent);
  std::vector<JsonLine> tasks;
  for (const TaskTime& t : r.times)
    tasks.push_back(JsonLine()
                        .add("task", t.task)
                        .add("of", t.of)
                        .add("calls", t.calls)
                        .add("seconds", t.seconds)
                        .add("collective_seconds", t.collectives)
                        .add("waits", t.waits));
  return json.add("tasks", tasks).lines();
}

template <class T>
void replay(const CommandLine& line, const Deck& deck, const World& here) {
  RunSetup setup = make_setup(without_files(deck), line.rank);
  prepare(setup, here);
  const auto machine = line.wire == "time" ? std::make_shared<const Machine>(read_machine(line.machine)) : nullptr;
  const auto wire = wire_of(line, setup, machine);
  const ReplayWorld world(here, line.rank, setup.mesh.world(), machine ? machine->ranks_per_node : setup.mesh.world(),
                          wire);
  Job<T> job(setup, RunKind::training, world);
  const Replayed result = measure(job, *wire, line.steps);
  std::printf("%s", text_of(line, setup, result).c_str());
  if (!line.json.empty()) write_text_file(line.json, json_text(line, deck, setup, result));
}

}  // namespace

void run_replay(const CommandLine& line, const World& here) {
  const std::list<OutputLock> locks = lock_outputs(line);
  const int node_ranks = line.machine.empty() ? asked_node_ranks() : read_machine(line.machine).ranks_per_node;
  const Deck deck = load_deck(line, Needs::training, line.ranks, node_ranks);
  check_outputs(line, deck);
  refuse_what_is_no_replay(line, deck, here);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { replay<T>(line, deck, here); });
}

}  // namespace forge
