#include "app/grid_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "app/candidates.hpp"
#include "app/plan_text.hpp"
#include "config/text.hpp"
#include "config/values.hpp"
#include "config/write_deck.hpp"
#include "core/build_info.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/file_errors.hpp"
#include "core/json.hpp"
#include "core/parse.hpp"
#include "core/random.hpp"
#include "schedule/check_deck.hpp"

namespace forge {

namespace {

constexpr std::size_t most_table_bytes = std::size_t{64} << 20;

const std::vector<std::string>& columns() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list{"model",
                                  "parameters",
                                  "nodes",
                                  "ranks",
                                  "result",
                                  "global_batch_sequences",
                                  "step_tokens",
                                  "step_seconds",
                                  "low",
                                  "high",
                                  "tokens_per_second_per_rank",
                                  "mfu",
                                  "hfu",
                                  "peak_bytes",
                                  "usable_bytes",
                                  "least_bytes",
                                  "binds"};
    for (const auto& [key, value] : layout_values(Deck{})) list.push_back(key);
    list.insert(list.end(), {"layouts", "left", "seconds", "context", "question"});
    return list;
  }();
  return names;
}

// As it is in a table: a number, a truth value, a text, or nothing.
std::string json_of_cell(const std::string& text) {
  if (text.empty()) return "null";
  return text == "true" || text == "false" || parse_number(text) ? text : json_of(text);
}

void add_outcome(GridRow& row, const Outcome& o) {
  const Prediction& p = o.time;
  const auto add = [&](const char* column, double value) { row.cells[column] = format_exact(value); };
  add("step_seconds", p.seconds);
  add("low", p.low);
  add("high", p.high);
  add("tokens_per_second_per_rank", p.tokens_per_second);
  add("mfu", p.mfu);
  add("hfu", p.hfu);
  row.cells["peak_bytes"] = std::to_string(o.memory.total());
  row.cells["binds"] = binding_part(o);
  for (const auto& [key, value] : layout_values(o.deck)) row.cells[key] = value;
}

}  // namespace

double GridRow::number(const std::string& column) const {
  double value = 0;
  return reads_as(at(column), value) ? value : 0;
}

std::string grid_context(const Machine& machine) {
  const std::string text = program_revision() + machine.text + machine.program.text + format_exact(machine.imbalance);
  return formatted("%016llx", static_cast<unsigned long long>(hash_of(text)));
}

std::string grid_question(const Machine& machine, const std::string& model, const Deck& cell, int ranks) {
  const std::string text = grid_context(machine) + model + write_deck(cell) + std::to_string(ranks);
  return formatted("%016llx", static_cast<unsigned long long>(hash_of(text)));
}

GridRow grid_row(const Machine& machine, const GridModel& model, const Deck& cell, int ranks,
                 const std::optional<SearchResult>& result, std::optional<std::size_t> least) {
  GridRow row;
  for (const std::string& column : columns()) row.cells[column] = "";
  const std::int64_t sequences = cell.train.global_batch_sequences;
  const auto add = [&](const char* column, std::int64_t value) { row.cells[column] = std::to_string(value); };
  row.cells["model"] = model.name;
  add("parameters", model.parameters);
  add("nodes", (ranks + machine.ranks_per_node - 1) / machine.ranks_per_node);
  add("ranks", ranks);
  add("global_batch_sequences", sequences);
  add("step_tokens", sequences * cell.train.sequence_tokens);
  add("usable_bytes", static_cast<std::int64_t>(usable_memory(machine, ranks)));
  if (result && !result->best.empty()) least = std::min(least.value_or(SIZE_MAX), result->best.front().memory.total());
  if (least) add("least_bytes", static_cast<std::int64_t>(*least));
  const bool legal = !result || !result->best.empty() || result->refused < result->layouts;
  row.cells["result"] = !legal                            ? "not legal"
                        : result && !result->best.empty() ? "fits"
                        : result && result->left > 0      ? "not searched to its end"
                                                          : "no room";
  add("layouts", result ? result->layouts : 0);
  add("left", result ? result->left : 0);
  if (row.fits()) add_outcome(row, result->best.front());
  row.cells["context"] = grid_context(machine);
  row.cells["question"] = grid_question(machine, model.name, cell, ranks);
  return row;
}

Outcome grid_outcome(const Machine& machine, const Deck& cell, const GridRow& row) {
  Deck deck = cell;
  Report problems;
  for (const auto& [name, unused] : layout_values(cell)) {
    YamlNode value;
    const std::size_t dot = name.find('.');
    const Key& key = *find_key(name.substr(0, dot), name.substr(dot + 1));
    if (parse_yaml(row.at(name), name, value, problems))
      if (const std::string wrong = read_value(key, value, deck); !wrong.empty()) problems.add(name, wrong);
  }
  problems.throw_if_any("the row of " + row.at("model") + " on " + row.at("ranks"));
  check_deck(deck, static_cast<int>(row.ranks()));
  return outcome_of(machine, deck);
}

namespace {

// Figures that somebody has changed into none: the cell is made again.
bool has_figures(const GridRow& row) {
  const bool fits = row.fits();
  for (const char* column : {"parameters", "nodes", "ranks", "step_seconds", "tokens_per_second_per_rank", "mfu", "hfu",
                             "peak_bytes", "usable_bytes"}) {
    const auto value = parse_number(row.at(column));
    if (row.at(column).empty() ? fits : !value || !std::isfinite(*value) || *value < 0) return false;
  }
  return fits || row.is_open() || row.at("result") == "no room" || row.at("result") == "not legal";
}

}  // namespace

std::vector<GridRow> read_grid(const std::string& file) {
  std::vector<GridRow> rows;
  if (file.empty() || !is_file(file)) return rows;
  const std::string text = read_text_file(file, most_table_bytes, "the grid");
  if (text.empty()) return rows;
  const CsvTable table = [&] {
    try {
      return read_csv(text, file);
    } catch (const BadInput& torn) {
      throw BadInput("--output " + std::string(torn.what()) +
                     "; legal: the table without that line, whose cell is searched again, or a new name");
    }
  }();
  if (table.head != columns())
    throw BadInput("--output " + file +
                   " is there, and is no grid of this version of forge; legal: a new name, or a grid to go on with");
  for (const auto& cells : table.rows) {
    GridRow& row = rows.emplace_back();
    for (std::size_t c = 0; c < cells.size(); ++c) row.cells[table.head[c]] = cells[c];
    if (!has_figures(row)) row.cells["question"] = row.cells["context"] = "";
  }
  return rows;
}

std::string grid_csv(const std::vector<GridRow>& rows) {
  CsvTable table{columns(), {}};
  for (const GridRow& row : rows) {
    auto& cells = table.rows.emplace_back();
    for (const std::string& column : columns()) cells.push_back(row.at(column));
  }
  return write_csv(table);
}

std::string GridNeed::open_text() const {
  std::vector<std::string> texts;
  for (const std::int64_t n : open) texts.push_back(std::to_string(n));
  return joined(texts);
}

std::vector<GridNeed> grid_needs(const std::vector<GridRow>& rows) {
  std::vector<GridNeed> needs;
  for (const GridRow& row : rows) {
    auto need = std::find_if(needs.begin(), needs.end(), [&](const auto& n) { return n.model == row.at("model"); });
    if (need == needs.end()) need = needs.insert(needs.end(), {row.at("model")});
    if (row.fits() && (need->ranks == 0 || row.ranks() < need->ranks)) {
      need->nodes = row.nodes();
      need->ranks = row.ranks();
    }
    if (row.is_open()) need->open.push_back(row.ranks());
  }
  for (GridNeed& need : needs)
    if (need.ranks > 0) std::erase_if(need.open, [&](std::int64_t ranks) { return ranks > need.ranks; });
  return needs;
}

std::string grid_json(const Machine& machine, const std::vector<GridRow>& rows, const std::vector<GridFill>& fills) {
  std::vector<JsonLine> cells, needs, filled;
  for (const GridRow& row : rows) {
    JsonLine& cell = cells.emplace_back();
    for (const std::string& column : columns())
      cell.add_raw(column,
                   has_word("model context question", column) ? json_of(row.at(column)) : json_of_cell(row.at(column)));
  }
  for (const GridNeed& need : grid_needs(rows))
    needs.emplace_back()
        .add("model", need.model)
        .add("nodes", need.nodes)
        .add("ranks", need.ranks)
        .add_raw("not_known_of_ranks", "[" + need.open_text() + "]");
  for (const GridFill& fill : fills) {
    JsonLine& one = filled.emplace_back();
    one.add("nodes", fill.nodes).add("ranks", fill.ranks).add("models", fill.models);
    one.add("smallest_dense_parameters", fill.smallest).add("largest_dense_parameters", fill.largest);
  }
  JsonLine all;
  all.add("machine", machine.name).add("description", machine.description).add("program", machine.program.name);
  std::int64_t most = 0;
  for (const GridRow& row : rows) most = std::max(most, row.ranks());
  if (const std::string note = comparison_note(machine, most); !note.empty()) all.add("note", note);
  return all.add("cells", cells).add("needs", needs).add("fills", filled).text();
}

}  // namespace forge
