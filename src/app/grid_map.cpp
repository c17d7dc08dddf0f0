#include <algorithm>
#include <array>
#include <set>

#include "app/grid_table.hpp"
#include "app/plan_text.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "schedule/draw.hpp"

namespace forge {

namespace {

constexpr double cell_width = 118, cell_height = 50, top = 92, darkest_mfu = 0.7;

using Colour = std::array<double, 3>;
// From light yellow over green to dark blue: ordered in grey, too.
constexpr std::array<Colour, 4> scale{{{250, 244, 198}, {134, 204, 150}, {42, 128, 150}, {40, 38, 102}}};

Colour colour_of(double mfu) {
  const double at = std::clamp(mfu / darkest_mfu, 0.0, 1.0) * static_cast<double>(scale.size() - 1);
  const std::size_t left = std::min(static_cast<std::size_t>(at), scale.size() - 2);
  Colour colour;
  for (std::size_t c = 0; c < 3; ++c)
    colour[c] = scale[left][c] + (at - static_cast<double>(left)) * (scale[left + 1][c] - scale[left][c]);
  return colour;
}

std::string text_of(const Colour& c) {
  return formatted("rgb(%.0f,%.0f,%.0f)", c[0], c[1], c[2]);
}

bool is_dark(const Colour& c) {
  return 0.3 * c[0] + 0.59 * c[1] + 0.11 * c[2] < 140;
}

std::string text_at(double x, double y, const std::string& attributes, const std::string& text) {
  return formatted("<text x=\"%.0f\" y=\"%.0f\" %s>", x, y, attributes.c_str()) + xml_escaped(text) + "</text>\n";
}

std::string rectangle(double x, double y, double width, double height, const std::string& fill,
                      const std::string& title = "") {
  return formatted("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\">", x, y, width, height,
                   fill.c_str()) +
         (title.empty() ? "" : "<title>" + xml_escaped(title) + "</title>") + "</rect>\n";
}

std::string title_of(const GridRow& row) {
  std::string text = row.at("model") + " on " + row.at("ranks") + ": " + row.at("result");
  if (!row.fits()) return text;
  text = row.at("model") + " on " + row.at("ranks") + ": " + row.at("step_seconds") + " s a step; ";
  for (const char* axis : {"pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "etp"})
    text += std::string(axis) + " " + row.at(std::string("mesh.") + axis) + ", ";
  if (row.at("train.overlap") != "none") text += row.at("train.overlap") + " of ";
  return text + row.at("schedule.name") + ", microbatch " + row.at("train.microbatch_sequences") + ", zero " +
         row.at("train.zero_stage") + ", recompute " + row.at("train.recompute") + "; " + row.at("binds");
}

std::string cell_of(const GridRow& row, double x, double y) {
  const bool fits = row.fits();
  const Colour colour = fits ? colour_of(row.number("mfu")) : Colour{236, 236, 236};
  const std::string ink = !fits ? "#777" : is_dark(colour) ? "#fff" : "#111";
  const std::string middle = "text-anchor=\"middle\" fill=\"" + ink + "\"";
  std::string svg = rectangle(x, y, cell_width - 2, cell_height - 2, text_of(colour), title_of(row));
  const double centre = x + cell_width / 2 - 1;
  if (!fits) return svg + text_at(centre, y + 28, middle, row.at("result"));
  svg += text_at(centre, y + 17, middle + " font-size=\"13\" font-weight=\"bold\"",
                 formatted("%.1f %%%s", 100 * row.number("mfu"), row.is_cut() ? "*" : ""));
  svg += text_at(centre, y + 30, middle, formatted("%.0f tokens/s", row.number("tokens_per_second_per_rank")));
  return svg + text_at(centre, y + 43, middle,
                       formatted("%.1f GiB (%.0f %%)", row.number("peak_bytes") / (1 << 30), 100 * row.memory_share()));
}

std::string legend(double x, double y) {
  constexpr int steps = 14;
  std::string svg = text_at(x, y + 11, "fill=\"#111\"", "MFU 0");
  for (int i = 0; i < steps; ++i)
    svg += rectangle(x + 40 + 12 * i, y, 12.5, 14, text_of(colour_of(darkest_mfu * (i + 0.5) / steps)));
  return svg + text_at(x + 46 + 12 * steps, y + 11, "fill=\"#111\"", formatted("%.0f %%", 100 * darkest_mfu));
}

template <class T>
std::size_t place_in(const std::vector<T>& list, const T& value) {
  return to_size(std::find(list.begin(), list.end(), value) - list.begin());
}

}  // namespace

std::string grid_map(const Machine& machine, const std::vector<GridRow>& rows) {
  std::vector<std::string> models;
  std::set<std::int64_t> all_ranks;
  std::size_t longest = 0;
  for (const GridRow& row : rows) {
    if (place_in(models, row.at("model")) == models.size()) models.push_back(row.at("model"));
    all_ranks.insert(row.ranks());
    longest = std::max(longest, row.at("model").size());
  }
  const bool some_left = std::ranges::any_of(rows, &GridRow::is_cut);
  const std::vector<std::int64_t> ranks(all_ranks.begin(), all_ranks.end());
  const double left = 20 + 7.5 * static_cast<double>(longest);
  const double width = std::max(520.0, left + cell_width * static_cast<double>(ranks.size()) + 10);
  const double height = top + cell_height * static_cast<double>(models.size()) + 10;
  std::string svg = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n",
      width, height);
  svg += rectangle(0, 0, width, height, "#fff");
  svg += text_at(10, 20, "font-size=\"14\" fill=\"#111\"",
                 "The fastest layouts that fit on " + machine.name + ", predicted by forge plan");
  svg += text_at(10, 37, "fill=\"#444\"",
                 formatted("MFU, tokens/s of a %s, and memory of a %s with its share%s", rank_word(machine),
                           rank_word(machine), some_left ? "; *: layouts were left when time was up" : ""));
  svg += legend(10, 46);
  for (std::size_t c = 0; c < ranks.size(); ++c)
    svg += text_at(left + cell_width * (static_cast<double>(c) + 0.5), top - 8, "text-anchor=\"middle\" fill=\"#111\"",
                   counted((ranks[c] + machine.ranks_per_node - 1) / machine.ranks_per_node, "node") + ", " +
                       counted(ranks[c], rank_word(machine)));
  for (std::size_t m = 0; m < models.size(); ++m)
    svg += text_at(10, top + cell_height * (static_cast<double>(m) + 0.5) + 3, "fill=\"#111\"", models[m]);
  for (const GridRow& row : rows)
    svg += cell_of(row, left + cell_width * static_cast<double>(place_in(ranks, row.ranks())),
                   top + cell_height * static_cast<double>(place_in(models, row.at("model"))));
  return svg + "</svg>\n";
}

}  // namespace forge
