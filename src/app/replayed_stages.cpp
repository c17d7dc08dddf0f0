#include "app/replayed_stages.hpp"

#include <algorithm>

#include "config/text.hpp"
#include "config/write_deck.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "core/to_size.hpp"
#include "hf/json_input.hpp"

namespace forge {

namespace {

constexpr std::int64_t most_ranks = std::int64_t{1} << 20;
constexpr double most_seconds = 86400;

// Refuses a file that lacks a pass of a task of its stage.
void require_passes(const std::string& file, const MeasuredTasks& tasks, const RunSetup& setup, int stage) {
  const RankShare share = rank_share(setup.model_share(), stage * (setup.mesh.world() / setup.mesh.pp));
  for (const Task& task : step_tasks(share, setup.schedule, setup.buffers.recompute)) {
    const std::string name(name_of(task.op)), of = subject_of(task, share, setup.spec);
    const bool computes = name.starts_with("forward") || name.starts_with("backward") || name == "recompute";
    if (computes && !tasks.contains({name, of}))
      throw BadInput(file + " has no time of " + name + " of " + of + "; legal: a whole file of forge replay --json");
  }
}

// A replay's file, of pipeline rank `stage`, or, −1, of any between the first and the last.
MeasuredTasks read_file(const std::string& file, const RunSetup& setup, std::int64_t stage) {
  const Deck& deck = setup.deck;
  const auto json = parse_json(read_text_file(file, std::size_t{16} << 20, "the replay"), file, {});
  Report report;
  const JsonObject replay(json, file, report);
  if (replay.text("deck", "") != deck_hash(deck))
    throw BadInput(file +
                   " was replayed of another deck; legal: the same deck, --ranks and --set as here, but for "
                   "train.global_batch_sequences");
  if (replay.text("wire", "") != "none")
    throw BadInput(file + " was replayed with --wire " + replay.text("wire", "") + "; legal: --wire none");
  const std::int64_t found = replay.integer("pp_rank", 0, 0, most_ranks), last = deck.mesh.pp - 1;
  if (stage >= 0 ? found != stage : found == 0 || found == last)
    throw BadInput(file + " is of pipeline stage " + std::to_string(found) + "; legal in its place: " +
                   (stage >= 0 ? "stage " + std::to_string(stage) : "one of 1 to " + std::to_string(last - 1)));
  MeasuredTasks tasks;
  const auto* list = replay.find("tasks");
  if (!list || !list->is_array()) throw BadInput(file + ": has no tasks; legal: a file of forge replay --json");
  for (const auto& element : *list) {
    const JsonObject task(element, file + ": tasks", report);
    const double seconds = task.amount("seconds", 0) - task.amount("collective_seconds", 0);
    if (seconds > most_seconds) task.refuse("seconds", "= " + format_exact(seconds) + "; legal: up to a day");
    const std::int64_t calls = task.integer("calls", 1, 1, std::int64_t{1} << 40);
    if (!task.flag("waits", false))
      tasks[{task.text("task", ""), task.text("of", "")}] = std::max(seconds, 0.0) / static_cast<double>(calls);
  }
  report.throw_if_any(file);
  require_passes(file, tasks, setup, static_cast<int>(found));
  return tasks;
}

}  // namespace

std::string deck_hash(Deck deck) {
  deck.train.global_batch_sequences = 0;
  return std::to_string(hash_of(write_deck(deck)));
}

ReplayedStages read_replayed(const CommandLine& line, const RunSetup& setup) {
  const Deck& deck = setup.deck;
  ReplayedStages stages;
  if (line.replayed.empty()) return stages;
  const std::int64_t pp = deck.mesh.pp, needed = std::min<std::int64_t>(pp, 3);
  if (static_cast<std::int64_t>(line.replayed.size()) != needed)
    throw BadInput("--replayed: " + counted(static_cast<std::int64_t>(line.replayed.size()), "file") +
                   ", and mesh.pp is " + std::to_string(pp) + "; legal: " +
                   (needed == 1   ? "one file"
                    : needed == 2 ? "a file of each stage"
                                  : "three files, of the first stage, of one between, and of the last"));
  for (std::int64_t i = 0; i < needed; ++i) {
    const bool between = i == 1 && needed == 3;
    stages.files.push_back(read_file(line.replayed[to_size(i)], setup, between ? -1 : i == 0 ? 0 : pp - 1));
  }
  for (std::int64_t stage = 0; stage < pp; ++stage)
    stages.by_stage.push_back(&stages.files[to_size(stage == 0 ? 0 : stage == pp - 1 ? needed - 1 : 1)]);
  return stages;
}

}  // namespace forge
