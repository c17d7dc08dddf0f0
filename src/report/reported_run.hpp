#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/thinned_series.hpp"

namespace forge {

// Something that happened in a run: a start, a save, a signal, steps without an update, slow ranks, a warning.
struct RunEvent {
  std::string kind, text;
  std::int64_t step = 0;
  std::int64_t number = 0;  // in the order in which they were added
};

// Events in their order; of a kind with more than `most` of them the first and the last ones.
class RunEvents {
 public:
  static constexpr std::size_t most = 200;
  void add(RunEvent event);
  // [{"kind": "save", "step": 20, "text": "…"}, …], by step.
  std::string json() const;
  // {"save": 1200, …}: how many there were.
  std::string counts_json() const;

 private:
  struct Kind {
    std::int64_t count = 0;
    std::vector<RunEvent> first;
    std::deque<RunEvent> last;
  };
  std::map<std::string, Kind> kinds_;
  std::int64_t added_ = 0;
};

// Series of a layer's routers: of each step, thinned.
struct LayerLoads {
  static constexpr std::size_t most_columns = 256;
  ThinnedSeries load_max{most_columns}, load_min{most_columns}, entropy{most_columns}, dropped_share{most_columns};
};

// Norms of a unit's weights, and of their changes by updates.
struct UnitNorms {
  static constexpr std::size_t most_values = 200;
  ThinnedSeries weights{most_values}, update{most_values};
};

// All that a report shows of a run, in memory that doesn't grow with its length.
struct ReportedRun {
  std::string name, path;          // as the page calls it; as it was given
  std::vector<std::string> notes;  // sentences: files missing, torn, or still being written
  // From metrics.jsonl: numbers of a line by their keys ("loss", "validation_loss/books", "sources/web/loss").
  std::map<std::string, ThinnedSeries> series;
  ThinnedSeries tokens, seconds;  // where the steps are on other axes
  std::map<std::int64_t, LayerLoads> loads;
  std::map<std::string, UnitNorms> norms;
  std::int64_t first_step = 0, last_step = 0, steps = 0;  // with lines
  RunEvents events;
  // From log.txt: seconds of rank 0 by phase, and lines about memory, of the last start that came to its end.
  std::vector<std::pair<std::string, double>> phases;
  std::string memory_line;
  std::vector<std::string> samples;
  std::string job;                          // job_info.json, "": none
  std::string deck;                         // deck.yaml, "": none
  std::map<std::string, std::string> keys;  // of the deck: "train.steps" → "200"
};

// Reads a run's directory, or a metrics.jsonl alone. Throws BadInput where it is neither, IoFailed where reading fails;
// files that are missing and lines that are torn become notes.
ReportedRun read_reported_run(const std::string& path);

// Parts of it, of one file each.
void read_run_metrics(const std::string& file, ReportedRun& run);
void read_run_log(const std::string& file, ReportedRun& run);

// A JSON object of the run, for the page's drawings.
std::string json_of_run(const ReportedRun& run);

}  // namespace forge
