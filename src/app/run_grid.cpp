#include "app/run_grid.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "app/grid_table.hpp"
#include "app/plan_text.hpp"
#include "app/searched_deck.hpp"
#include "config/output_lock.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/file_errors.hpp"
#include "predict/dense_shape.hpp"
#include "predict/least_memory.hpp"
#include "schedule/check_deck.hpp"

namespace forge {

namespace {

constexpr int most_searched_ranks = 8192;  // where the number of nodes is asked for
constexpr double search_seconds = 20;      // of a cell, before layouts are left out; --seconds

class GridSearch {
 public:
  GridSearch(const CommandLine& line, const Machine& machine)
      : line_(line), machine_(machine), models_(grid_models(line)), ranks_(asked_ranks()) {
    for (GridModel& model : models_) model.deck.mesh.node_ranks = machine.ranks_per_node;
    refuse_unknown_rates();
    keep_known(read_grid(line.output));
    if (!line.write.empty()) lock_.emplace(line.write, "--write");
  }

  void run() {
    for (const GridModel& model : models_) {
      for (const int ranks : ranks_) {
        add(model, ranks);
        if (stops_where_it_fits() && rows_.back().fits()) break;
      }
    }
    if (!line_.output.empty()) write_rows();
    const std::vector<GridFill> fills = all_fills();
    if (kept_ > 0) std::printf("%zu of %zu cells were in %s\n", kept_, rows_.size(), line_.output.c_str());
    std::printf("%s%s%s", grid_text(machine_, rows_, fills).c_str(), left_text().c_str(), note_text().c_str());
    if (!line_.json.empty()) write_text_file(line_.json, grid_json(machine_, rows_, fills));
    if (!line_.svg.empty()) write_text_file(line_.svg, grid_map(machine_, rows_));
  }

 private:
  std::vector<int> asked_ranks() const {
    std::vector<int> ranks = line_.rank_counts;
    for (const int nodes : line_.nodes) ranks.push_back(nodes * machine_.ranks_per_node);
    for (const int n : ranks)
      if (n > machine_.ranks_per_node && machine_.between_nodes.empty())
        throw BadInput("--nodes and --ranks: machine " + machine_.name + " is one node of " +
                       std::to_string(machine_.ranks_per_node) + " ranks; legal: so many, or a machine with a network");
    const int most = machine_.between_nodes.empty() ? machine_.ranks_per_node : most_searched_ranks;
    for (int n = machine_.ranks_per_node; stops_where_it_fits() && n <= most; n *= 2) ranks.push_back(n);
    return ranks;
  }

  double seconds() const { return search_options(line_, 1, 1, search_seconds).seconds; }

  // Without numbers of nodes those that each model needs are looked for.
  bool stops_where_it_fits() const { return line_.nodes.empty() && line_.rank_counts.empty(); }

  // Rows of an earlier start that answer a question of this one; those of cells that this one doesn't ask for stay.
  void keep_known(std::vector<GridRow> rows) {
    std::set<std::string> asked, cells;
    for (const GridModel& model : models_)
      for (const int ranks : ranks_) {
        asked.insert(grid_question(machine_, model.name, cell_deck(model, ranks), ranks));
        cells.insert(model.name + " " + std::to_string(ranks));
      }
    std::size_t left = 0;
    for (GridRow& row : rows) {
      const bool cut = row.is_cut() && row.number("seconds") < seconds();
      if (asked.contains(row.at("question")) && !cut)
        known_.emplace(row.at("question"), std::move(row));
      else if (cut && asked.contains(row.at("question")))
        ++again_;
      else if (row.at("context") == grid_context(machine_) && !cells.contains(row.at("model") + " " + row.at("ranks")))
        others_.push_back(std::move(row));
      else
        ++left;
    }
    if (again_ > 0)
      std::printf("%s: %s had left layouts out, and will be searched again\n", line_.output.c_str(),
                  counted(again_, "cell").c_str());
    if (left > 0)
      std::printf("%s: rows that answer another question, and are left out: %zu of %zu\n", line_.output.c_str(), left,
                  rows.size());
  }

  // Before the first cell: of a machine without rates of a model's type no layout has a time.
  void refuse_unknown_rates() const {
    for (const GridModel& model : models_) {
      try {
        machine_.rates(precision_of(model.deck).compute);
      } catch (const BadInput& unknown) {
        throw BadInput("--models " + model.source + ": " + unknown.what());
      }
    }
  }

  void add(const GridModel& model, int ranks) {
    const Deck cell = cell_deck(model, ranks);
    const auto known = known_.find(grid_question(machine_, model.name, cell, ranks));
    if (known != known_.end()) {
      rows_.push_back(std::move(known->second));
      known_.erase(known);
      ++kept_;
      if (lock_ && rows_.back().fits()) write_deck_of(model, grid_outcome(machine_, cell, rows_.back()));
      return;
    }
    std::optional<SearchResult> result;
    if (has_room_for_state(cell, ranks))
      result = search(machine_, cell, search_options(line_, ranks, 1, search_seconds));
    rows_.push_back(grid_row(machine_, model, cell, ranks, result, least_bytes(machine_, cell, ranks)));
    rows_.back().cells["seconds"] = format_exact(seconds());
    if (lock_ && rows_.back().fits()) write_deck_of(model, result->best.front());
    print(rows_.back());
    if (!line_.output.empty()) write_rows();
  }

  // With those of an earlier start that are still to come.
  void write_rows() const {
    std::vector<GridRow> rows = rows_;
    for (const auto& [question, row] : known_) rows.push_back(row);
    rows.insert(rows.end(), others_.begin(), others_.end());
    write_text_file(line_.output, grid_csv(rows));
  }

  std::string deck_path(const GridRow& row) const {
    return (std::filesystem::path(line_.write) / (row.at("model") + "_" + row.at("ranks") + "gpu.yaml")).string();
  }
  // Of the last row.
  void write_deck_of(const GridModel& model, const Outcome& outcome) const {
    const GridRow& row = rows_.back();
    const std::string command =
        "forge plan --grid --models " + shell_word(model.source) + " --ranks " + row.at("ranks") + search_words(line_);
    write_text_file(deck_path(row), layout_deck(machine_, outcome, model.source, command));
  }

  // Whether parameters and what the optimizer keeps of them have room, shared by all ranks.
  bool has_room_for_state(const Deck& cell, int ranks) const {
    MeshDeck one;
    one.dp_shard = 1;
    one.etp = 1;
    Deck whole = smallest_on(cell, one);
    try {
      check_deck(whole, 1);
    } catch (const BadInput&) {
      return true;  // nothing is known
    }
    const MemoryPlan plan = planned_memory(make_setup(whole), RunKind::training, 0);
    const std::size_t state = plan.of(Category::parameters) + plan.of(Category::optimizer);
    return state / static_cast<std::size_t>(ranks) <= usable_memory(machine_, ranks);
  }

  void print(const GridRow& row) const {
    std::string text = row.at("result");
    if (row.fits())
      text = formatted("%.0f tokens/s a %s, mfu %.1f %%, %s; %s", row.number("tokens_per_second_per_rank"),
                       rank_word(machine_), 100 * row.number("mfu"),
                       format_bytes(static_cast<std::uint64_t>(row.number("peak_bytes"))).c_str(),
                       row.at("binds").c_str());
    std::printf("%s on %s: %s\n", row.at("model").c_str(), counted(row.ranks(), rank_word(machine_)).c_str(),
                text.c_str());
    std::fflush(stdout);
  }

  std::string left_text() const {
    const auto cells = std::ranges::count_if(rows_, &GridRow::is_cut);
    if (cells == 0) return "";
    return "* " + counted(cells, "cell") + " had layouts left when time was up: more with --seconds, now " +
           format_exact(seconds()) + "\n";
  }

  std::string note_text() const {
    const std::string note = comparison_note(machine_, *std::max_element(ranks_.begin(), ranks_.end()));
    return note.empty() ? "" : note + "\n";
  }

  std::vector<GridFill> all_fills() const {
    std::map<std::int64_t, GridFill> fills;
    for (const GridRow& row : rows_) {
      GridFill& fill = fills[row.ranks()];
      fill.nodes = row.nodes();
      fill.ranks = row.ranks();
      const double share = row.least_share();
      if (share >= least_fill && share <= most_fill) fill.models.push_back(row.at("model"));
    }
    std::vector<GridFill> list;
    for (auto& [ranks, fill] : fills) {
      fill.smallest = dense_size(least_fill, fill.ranks);
      fill.largest = dense_size(most_fill, fill.ranks);
      list.push_back(fill);
    }
    return list;
  }

  double dense_share(double parameters, std::int64_t ranks) const {
    const int n = static_cast<int>(ranks);
    const auto bytes = least_bytes(machine_, cell_deck(dense_model(line_, parameters), n), n);
    return bytes ? static_cast<double>(*bytes) / static_cast<double>(usable_memory(machine_, n)) : INFINITY;
  }

  // Parameters of the dense model that needs such a share of a rank's memory, by bisection; 0: below or beyond the
  // sizes.
  double dense_size(double share, std::int64_t ranks) const {
    constexpr int halvings = 8;  // of the sizes' logarithm, to 3 %
    double low = least_dense_parameters, high = most_dense_parameters;
    if (dense_share(low, ranks) > share || dense_share(high, ranks) < share) return 0;
    for (int i = 0; i < halvings; ++i) {
      const double middle = std::sqrt(low * high);
      (dense_share(middle, ranks) > share ? high : low) = middle;
    }
    return std::sqrt(low * high);
  }

  const CommandLine& line_;
  const Machine& machine_;
  std::vector<GridModel> models_;
  std::vector<int> ranks_;                // of the cells
  std::map<std::string, GridRow> known_;  // by question
  std::optional<OutputDirectoryLock> lock_;
  std::vector<GridRow> rows_;
  std::vector<GridRow> others_;  // of cells that aren't asked for
  std::size_t kept_ = 0, again_ = 0;
};

}  // namespace

void run_grid(const CommandLine& line, const Machine& machine) {
  GridSearch(line, machine).run();
}

}  // namespace forge
