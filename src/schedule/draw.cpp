#include "schedule/draw.hpp"

#include "core/bytes.hpp"
#include "core/to_size.hpp"

#include <algorithm>
#include <cmath>

namespace forge {

namespace {

// A coloured box of the drawing: one compute action, Op::backward as its two halves.
struct Box {
  Op op;
  int chunk, microbatch;
  Interval interval;
};

// Actions that run at once are drawn one behind the other.
std::vector<Box> boxes_of(const Schedule& schedule, const ScheduleTimes& times, const DurationOf& duration, int rank) {
  std::vector<Box> boxes;
  for (std::size_t i = 0; i < schedule.actions[to_size(rank)].size(); ++i) {
    const Action& action = schedule.actions[to_size(rank)][i];
    Interval interval = times.intervals[to_size(rank)][i];
    if (!is_compute(action.op)) continue;
    if (action.paired) interval.end = interval.start + duration(action.op, schedule.stage_at(rank, action.chunk));
    if (i > 0 && schedule.actions[to_size(rank)][i - 1].paired) interval.start = boxes.back().interval.end;
    if (action.op != Op::backward) {
      boxes.push_back({action.op, action.chunk, action.microbatch, interval});
      continue;
    }
    const double middle = interval.start + duration(Op::backward_input, schedule.stage_at(rank, action.chunk));
    boxes.push_back({Op::backward_input, action.chunk, action.microbatch, {interval.start, middle}});
    boxes.push_back({Op::backward_weight, action.chunk, action.microbatch, {middle, interval.end}});
  }
  return boxes;
}

std::string label(const Schedule& schedule, const Box& box) {
  const char letter = box.op == Op::forward ? 'F' : box.op == Op::backward_input ? 'B' : 'W';
  std::string text = letter + std::to_string(box.microbatch);
  if (schedule.chunks_per_rank > 1) text += box.chunk < 26 ? static_cast<char>('a' + box.chunk) : '+';
  return text;
}

std::string caption(const Schedule& schedule, const ScheduleTimes& times) {
  return schedule.name + ": " + counted(schedule.ranks, "rank") + ", " + counted(schedule.chunks_per_rank, "chunk") +
         " each, " + counted(schedule.microbatches, "microbatch", "microbatches") + ", bubble " +
         formatted("%.1f %%", 100 * times.bubble_fraction()) + " of " + formatted("%.6g", times.makespan);
}

// F blue, B orange, W green; each later chunk a step darker.
std::string colour(const Box& box) {
  const int base[3][3] = {{147, 190, 232}, {245, 176, 110}, {150, 208, 150}};
  const int kind = box.op == Op::forward ? 0 : box.op == Op::backward_input ? 1 : 2;
  const double shade = std::pow(0.8, std::min(box.chunk, 4));
  return formatted("#%02x%02x%02x", static_cast<int>(base[kind][0] * shade), static_cast<int>(base[kind][1] * shade),
                   static_cast<int>(base[kind][2] * shade));
}

}  // namespace

std::string xml_escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

std::string draw_text(const Schedule& schedule, const DurationOf& duration) {
  const ScheduleTimes times = timeline(schedule, duration);
  std::vector<std::vector<Box>> rows;
  double unit = times.makespan > 0 ? times.makespan : 1;
  std::size_t width = 0;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    rows.push_back(boxes_of(schedule, times, duration, rank));
    for (const Box& box : rows.back()) {
      const double length = box.interval.end - box.interval.start;
      if (length > 0) unit = std::min(unit, length);
      width = std::max(width, label(schedule, box).size() + 1);
    }
  }
  std::string text;
  const std::size_t name_width = std::to_string(schedule.ranks - 1).size();
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::string number = std::to_string(rank);
    std::string row = "rank " + std::string(name_width - number.size(), ' ') + number + " |";
    const std::size_t origin = row.size();
    for (const Box& box : rows[to_size(rank)]) {
      const auto column = [&](double time) { return origin + width * to_size(std::lround(time / unit)); };
      const std::size_t begin = column(box.interval.start);
      if (box.interval.end <= box.interval.start) continue;
      row.resize(std::max(row.size(), begin), ' ');
      row += label(schedule, box);
      row.resize(std::max(row.size(), column(box.interval.end) - 1), '-');
      row += ' ';
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text + caption(schedule, times) + "\n";
}

std::string draw_svg(const Schedule& schedule, const DurationOf& duration) {
  const ScheduleTimes times = timeline(schedule, duration);
  const double left = 64, top = 30, row_height = 24;
  const double slots = 3.0 * schedule.microbatches * schedule.chunks_per_rank + schedule.ranks;
  const double scale = times.makespan > 0 ? std::clamp(26 * slots, 400.0, 8000.0) / times.makespan : 1;
  const double width = left + times.makespan * scale + 10;
  const double height = top + row_height * schedule.ranks + 10;
  const auto number = [](double value) { return formatted("%.2f", value); };
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width) + "\" height=\"" +
                    number(height) +
                    "\" font-family=\"sans-serif\" font-size=\"10\">\n<text x=\"4\" y=\"18\" "
                    "font-size=\"13\">" +
                    xml_escaped(caption(schedule, times)) + "</text>\n";
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const double y = top + row_height * rank;
    svg += "<text x=\"4\" y=\"" + number(y + 15) + "\">rank " + std::to_string(rank) + "</text>\n";
    for (const Box& box : boxes_of(schedule, times, duration, rank)) {
      const double x = left + box.interval.start * scale;
      const double length = (box.interval.end - box.interval.start) * scale;
      const std::string name = label(schedule, box);
      svg += "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(length) +
             "\" height=\"20\" fill=\"" + colour(box) + "\" stroke=\"#444\" stroke-width=\"0.5\"><title>" + name +
             "</title></rect>\n";
      if (length > 6.0 * static_cast<double>(name.size()))
        svg += "<text x=\"" + number(x + length / 2) + "\" y=\"" + number(y + 14) + "\" text-anchor=\"middle\">" +
               name + "</text>\n";
    }
  }
  return svg + "</svg>\n";
}

}  // namespace forge
