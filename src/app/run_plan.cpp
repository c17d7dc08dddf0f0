#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "app/candidates.hpp"
#include "app/device_fit.hpp"
#include "app/fit_runs.hpp"
#include "app/job.hpp"
#include "app/outputs.hpp"
#include "app/plan_limits.hpp"
#include "app/plan_text.hpp"
#include "app/replayed_stages.hpp"
#include "app/run_grid.hpp"
#include "app/searched_deck.hpp"
#include "app/summary_text.hpp"
#include "app/verbs.hpp"
#include "config/keys.hpp"
#include "config/shared_files.hpp"
#include "config/suggest.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/in_parallel.hpp"
#include "predict/advice.hpp"
#include "predict/search.hpp"

namespace forge {

namespace {

Machine machine_of(const CommandLine& line) {
  const std::vector<std::string> folders = shared_folders("inputs/machines");
  const bool measured = std::any_of(folders.begin(), folders.end(), [](const std::string& folder) {
    return std::filesystem::exists(folder + "/this.yaml");
  });
  if (!line.machine.empty() || measured) {
    Machine machine = read_machine(line.machine.empty() ? "this" : line.machine);
    if (!line.program.empty()) machine.program = read_program(line.program);
    machine.imbalance = line.imbalance;
    return machine;
  }
  throw BadInput("no machine: give --machine, a file or one of inputs/machines: " + shared_names("inputs/machines") +
                 "; or measure this one with forge calibrate");
}

// What a row of candidates adds to its cells.
struct Predicted {
  bool legal = false;
  double seconds = 0, low = 0, high = 0, tokens = 0;
  std::size_t bytes = 0;
  bool fits = false;
  std::int64_t ranks = 1;
};

// The note on its own line, behind an empty one.
std::string comparison_text(const Machine& machine, std::int64_t ranks) {
  const std::string note = comparison_note(machine, ranks);
  return note.empty() ? "" : "\n" + note + "\n";
}

// Columns of a candidates' table are keys of the deck.
void check_head(const CsvTable& table, const std::string& source) {
  for (const std::string& name : table.head) {
    const std::size_t dot = name.find('.');
    const std::string section = name.substr(0, dot), key = dot == std::string::npos ? "" : name.substr(dot + 1);
    const std::string near = suggest_key(section, key).text;
    if (!find_key(section, key))
      throw BadInput(source + ":1: column " + shown(name) + " is no key of the deck" +
                     (near.empty() ? "" : "; " + near));
  }
}

Predicted predict_row(const CommandLine& line, const Machine& machine, const CsvTable& table,
                      const std::vector<std::string>& row) {
  CommandLine one = line;
  for (std::size_t c = 0; c < row.size(); ++c)
    if (!row[c].empty()) one.set.push_back(table.head[c] + "=" + row[c]);
  Deck deck;
  try {
    deck = load_deck(one, Needs::training, line.ranks, machine.ranks_per_node);
  } catch (const BadInput&) {
    return {};
  }
  check_imbalance(line.imbalance, deck.model, line.inputs.front());
  const Outcome o = outcome_of(machine, deck);
  return {true,     o.time.seconds,     o.time.low, o.time.high, o.time.tokens_per_second, o.memory.total(),
          o.fits(), ranks_of(deck.mesh)};
}

void predict_candidates(const CommandLine& line, const Machine& machine) {
  CsvTable table = read_csv(read_text_file(line.candidates, std::size_t{64} << 20, "the candidates"), line.candidates);
  check_head(table, line.candidates);
  std::vector<Predicted> predicted(table.rows.size());
  in_parallel(predicted.size(),
              [&](std::size_t r) { predicted[r] = predict_row(line, machine, table, table.rows[r]); });
  for (const char* name : {"step_seconds", "low", "high", "tokens_per_second_per_rank", "peak_bytes", "legal", "fits"})
    table.head.push_back(name);
  for (std::size_t r = 0; r < predicted.size(); ++r) {
    const Predicted& p = predicted[r];
    const auto add = [&](const std::string& value) { table.rows[r].push_back(p.legal ? value : ""); };
    for (const double x : {p.seconds, p.low, p.high, p.tokens}) add(formatted("%.6g", x));
    add(std::to_string(p.bytes));
    table.rows[r].push_back(p.legal ? "true" : "false");
    add(p.fits ? "true" : "false");
  }
  write_text_file(line.output, write_csv(table));
  std::printf("%s in %s\n", counted(std::ssize(predicted), "layout").c_str(), line.output.c_str());
  std::int64_t most = 1;
  for (const Predicted& p : predicted) most = std::max(most, p.ranks);
  std::printf("%s", comparison_text(machine, most).c_str());
}

// The command whose result a layout is, for its deck.
std::string command_of(const CommandLine& line, int ranks) {
  return "forge plan " + shell_word(line.inputs.front()) + " --search --ranks " + std::to_string(ranks) +
         search_words(line);
}

void write_layouts(const CommandLine& line, const Machine& machine, const SearchResult& result, int ranks) {
  const std::string begin = line.rank_counts.size() > 1 ? "ranks_" + std::to_string(ranks) + "_layout_" : "layout_";
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const std::string path = (std::filesystem::path(line.write) / (begin + std::to_string(i + 1) + ".yaml")).string();
    write_text_file(path, layout_deck(machine, result.best[i], line.inputs.front(), command_of(line, ranks)));
    std::printf("%s\n", path.c_str());
  }
}

// A search for each number of ranks.
void run_search(const CommandLine& line, const Machine& machine) {
  Deck deck = searched_deck(line);
  deck.mesh.node_ranks = machine.ranks_per_node;
  check_imbalance(line.imbalance, deck.model, line.inputs.front());
  std::vector<int> counts = line.rank_counts;
  if (counts.empty())
    counts.push_back(static_cast<int>(ranks_of(load_deck(line, Needs::training, 0, machine.ranks_per_node).mesh)));
  std::optional<OutputDirectoryLock> lock;
  if (!line.write.empty()) lock.emplace(line.write, "--write");
  std::vector<JsonLine> searches;
  for (const int ranks : counts) {
    const SearchResult result = search(machine, deck, search_options(line, ranks, line.best, SearchOptions().seconds));
    std::printf("%s%s on %s of %s\n%s", searches.empty() ? "" : "\n", line.inputs.front().c_str(),
                counted(ranks, "rank").c_str(), machine.name.c_str(), search_text(machine, result).c_str());
    if (result.best.empty() && machine.cores_per_node == 0)
      std::printf("%s\n", fewest_gpus(deck, usable_memory(machine, ranks), machine.capability).text().c_str());
    std::fflush(stdout);
    searches.push_back(search_json(machine, result, ranks));
    if (lock) write_layouts(line, machine, result, ranks);
  }
  std::printf("%s", comparison_text(machine, *std::max_element(counts.begin(), counts.end())).c_str());
  if (!line.json.empty())
    write_text_file(line.json, JsonLine().add("machine", machine.name).add("searches", searches).text());
}

std::vector<MemoryCourse> memory_of_stages(const RunSetup& setup) {
  std::vector<MemoryCourse> courses;
  for (int p = 0; p < setup.mesh.pp; ++p) courses.push_back(memory_course(setup_of_stage(setup, p)));
  return courses;
}

}  // namespace

void run_plan(const CommandLine& line) {
  const std::list<OutputLock> locks = lock_outputs(line);
  Machine machine = machine_of(line);
  if (!line.fit.empty()) machine = fit_to_runs(line, machine);
  if (!line.candidates.empty()) return predict_candidates(line, machine);
  if (line.grid) return run_grid(line, machine);
  if (line.search) return run_search(line, machine);
  // A rank alone knows no nodes.
  const Deck deck = load_deck(line, Needs::training, line.ranks, line.replayed.empty() ? machine.ranks_per_node : 0);
  check_outputs(line, deck);
  check_imbalance(line.imbalance, deck.model, line.inputs.front());
  const RunSetup setup = on_devices(make_setup(deck), machine.capability);
  const ReplayedStages replayed = read_replayed(line, setup);
  const Outcome outcome = outcome_of(machine, setup, replayed.by_stage);
  // Neighbours have no measured times.
  std::vector<PredictedNeighbour> neighbours;
  if (replayed.files.empty()) neighbours = predicted_neighbours(machine, outcome);
  const std::vector<std::string> warnings = all_warnings(machine, outcome, neighbours);
  const std::int64_t ranks = ranks_of(deck.mesh);
  std::printf("%s on %s\n%s%s%s%s%s", line.inputs.front().c_str(), counted(ranks, "rank").c_str(),
              plan_text(machine, outcome).c_str(), line.fit.empty() ? comparison_text(machine, ranks).c_str() : "",
              warnings.empty() ? "" : "\n", warning_lines(warnings).c_str(),
              replayed.files.empty() ? ("\n" + neighbours_text(outcome, neighbours, 12)).c_str() : "");
  if (!line.json.empty()) write_text_file(line.json, plan_json(machine, outcome, neighbours, warnings));
  if (!line.trace.empty()) write_text_file(line.trace, plan_trace(outcome, memory_of_stages(setup)));
}

}  // namespace forge
