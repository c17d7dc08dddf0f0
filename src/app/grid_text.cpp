#include <algorithm>
#include <set>

#include "app/grid_table.hpp"
#include "app/plan_text.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "predict/dense_deck.hpp"

namespace forge {

namespace {

constexpr int cell_columns = 26;

std::string place_text(const Machine& machine, std::int64_t nodes, std::int64_t ranks) {
  return counted(nodes, "node") + ", " + counted(ranks, rank_word(machine));
}

std::string cell_text(const GridRow& row) {
  if (!row.fits()) return row.at("result") + (row.is_cut() ? "*" : " ");
  return formatted("%.0f %5.1f %% %6.1f GiB%s", row.number("tokens_per_second_per_rank"), 100 * row.number("mfu"),
                   row.number("peak_bytes") / (1 << 30), row.is_cut() ? "*" : " ");
}

std::string table_text(const Machine& machine, const std::vector<GridRow>& rows) {
  std::vector<std::string> models;
  std::set<std::pair<std::int64_t, std::int64_t>> places;  // ranks, nodes
  std::size_t width = 0;
  for (const GridRow& row : rows) {
    if (models.empty() || models.back() != row.at("model")) models.push_back(row.at("model"));
    places.insert({row.ranks(), row.nodes()});
    width = std::max(width, row.at("model").size());
  }
  const auto cell = [](const std::string& text) { return formatted(" %*s", cell_columns, text.c_str()); };
  std::string text = formatted("  %-*s", static_cast<int>(width), "");
  for (const auto& [ranks, nodes] : places) text += cell(place_text(machine, nodes, ranks));
  text += "\n";
  for (const std::string& model : models) {
    text += formatted("  %-*s", static_cast<int>(width), model.c_str());
    for (const auto& [ranks, nodes] : places) {
      const auto row = std::find_if(rows.begin(), rows.end(),
                                    [&](const GridRow& r) { return r.at("model") == model && r.ranks() == ranks; });
      text += cell(row == rows.end() ? "" : cell_text(*row));
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string fill_text(const Machine& machine, const GridFill& fill) {
  std::string text = "  " + place_text(machine, fill.nodes, fill.ranks) + ": ";
  if (fill.smallest == 0 && fill.largest > 0)
    text += "dense models of at most " + size_text(fill.largest);
  else if (fill.smallest > 0 && fill.largest == 0)
    text += "dense models of at least " + size_text(fill.smallest);
  else if (fill.smallest > 0)
    text += "dense models of " + size_text(fill.smallest) + " to " + size_text(fill.largest);
  else
    text += "no dense model from 1B to 1T";
  return text + (fill.models.empty() ? "" : "; of these " + joined(fill.models)) + "\n";
}

std::string open_text(const Machine& machine, const GridNeed& need) {
  if (need.open.empty()) return "";
  return "; not known of " + need.open_text() + " " + rank_word(machine) + "s, whose search had too little time";
}

}  // namespace

std::string grid_text(const Machine& machine, const std::vector<GridRow>& rows, const std::vector<GridFill>& fills) {
  std::string text =
      "machine   " + machine.name + ": " + machine.description + "\n" +
      formatted("the fastest layout that fits, predicted: tokens/s, MFU and memory of a %s\n", rank_word(machine)) +
      table_text(machine, rows) + "fits on\n";
  for (const GridNeed& need : grid_needs(rows))
    text += "  " + need.model + ": " +
            (need.ranks == 0 ? "none of these" : place_text(machine, need.nodes, need.ranks)) +
            open_text(machine, need) + "\n";
  text += formatted("needs at least %.0f to %.0f %% of a %s's memory\n", 100 * least_fill, 100 * most_fill,
                    rank_word(machine));
  for (const GridFill& fill : fills) text += fill_text(machine, fill);
  return text;
}

}  // namespace forge
