#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/grid_models.hpp"
#include "predict/machine.hpp"
#include "predict/search.hpp"

namespace forge {

// A cell of the grid: the texts of its columns, as --output has them. Empty: a cell without a layout has no such value.
struct GridRow {
  std::map<std::string, std::string> cells;

  const std::string& at(const std::string& column) const { return cells.at(column); }
  double number(const std::string& column) const;  // 0 where there is none
  std::int64_t ranks() const { return static_cast<std::int64_t>(number("ranks")); }
  std::int64_t nodes() const { return static_cast<std::int64_t>(number("nodes")); }
  bool fits() const { return at("result") == "fits"; }
  bool is_open() const { return at("result") == "not searched to its end"; }  // nothing was found before time was up
  bool is_cut() const { return number("left") > 0; }                          // its search had no time for some layouts
  // Shares of a rank's usable memory: of the fastest layout, and of the layout that needs least.
  double memory_share() const { return number("peak_bytes") / number("usable_bytes"); }
  double least_share() const { return number("least_bytes") / number("usable_bytes"); }
};

// A text that another machine, program or version of forge changes.
std::string grid_context(const Machine& machine);
// A text that another name, deck or number of ranks of the cell changes, too.
std::string grid_question(const Machine& machine, const std::string& model, const Deck& cell, int ranks);

// The row of a search's result, or of none, as nothing can fit; `least`: predict/least_memory.hpp.
GridRow grid_row(const Machine& machine, const GridModel& model, const Deck& cell, int ranks,
                 const std::optional<SearchResult>& result, std::optional<std::size_t> least);

// The cell's layout again, from its row. Throws BadInput where somebody has changed it into none.
Outcome grid_outcome(const Machine& machine, const Deck& cell, const GridRow& row);

// The rows of an earlier --output; none where there is no such file. Throws BadInput where it is another table.
std::vector<GridRow> read_grid(const std::string& file);
std::string grid_csv(const std::vector<GridRow>& rows);

// The fewest nodes of the grid on which a model fits; 0: none of them.
struct GridNeed {
  std::string model;
  std::int64_t nodes = 0, ranks = 0;
  std::vector<std::int64_t> open = {};  // fewer ranks of which it isn't known: their search had too little time
  std::string open_text() const;        // "256, 512"
};
std::vector<GridNeed> grid_needs(const std::vector<GridRow>& rows);

// Models that fill so many nodes: they take at least 60 to 70 % of the memory, so that the rest is left for speed.
inline constexpr double least_fill = 0.6, most_fill = 0.7;
struct GridFill {
  std::int64_t nodes = 0, ranks = 0;
  std::vector<std::string> models;   // of the grid
  double smallest = 0, largest = 0;  // dense sizes, in parameters; 0: below, or beyond, those that --models takes
};

// An object with cells, needs and fills.
std::string grid_json(const Machine& machine, const std::vector<GridRow>& rows, const std::vector<GridFill>& fills);

// For people: a table of models and nodes, then the nodes that each model needs, and the models that fill them.
std::string grid_text(const Machine& machine, const std::vector<GridRow>& rows, const std::vector<GridFill>& fills);

// The table as a heat map, an SVG document: colours by MFU, in each cell MFU, tokens/s and memory, and as its title
// layout and bottleneck.
std::string grid_map(const Machine& machine, const std::vector<GridRow>& rows);

}  // namespace forge
