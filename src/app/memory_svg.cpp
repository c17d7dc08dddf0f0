#include "app/memory_svg.hpp"

#include <algorithm>
#include <cmath>

#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "schedule/draw.hpp"
#include "train/profile.hpp"

namespace forge {

namespace {

// From below; the last but one are slots without contents.
struct Layer {
  const char* name;
  int category;  // −1: idle slots
  const char* colour;
};
constexpr Layer layers[] = {{"parameters", static_cast<int>(Category::parameters), "#4c78a8"},
                            {"gradients", static_cast<int>(Category::gradients), "#72b7b2"},
                            {"optimizer", static_cast<int>(Category::optimizer), "#9d755d"},
                            {"data", static_cast<int>(Category::data), "#bab0ac"},
                            {"library", static_cast<int>(Category::library), "#79706e"},
                            {"activations", static_cast<int>(Category::activations), "#f58518"},
                            {"slots without contents", -1, "#fbd9b5"},
                            {"workspace", static_cast<int>(Category::workspace), "#e45756"}};

std::size_t bytes_of(const MemoryCourse& course, const Layer& layer, std::size_t task) {
  return layer.category < 0 ? course.idle[task] : course.used[task][to_size(layer.category)];
}

// The tasks that are drawn: of many that share a column the one with most bytes.
std::vector<std::size_t> columns_of(const MemoryCourse& course) {
  constexpr std::size_t most = 1200;
  const std::size_t tasks = course.tasks.size(), count = std::min(tasks, most);
  std::vector<std::size_t> columns;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t fullest = i * tasks / count;
    for (std::size_t t = fullest; t < (i + 1) * tasks / count; ++t)
      if (course.bytes(t) > course.bytes(fullest) || t == course.peak) fullest = t;
    columns.push_back(fullest);
  }
  return columns;
}

std::string_view colour_of(const Task& task) {
  if (task.of_step()) return "#888";
  if (task.action.op == Op::forward) return "#93bee8";
  return is_compute(task.action.op) ? "#f5b06e" : "#ddd";
}

// " (layer 5)", of a block.
std::string layer_text(const Task& task, const RankShare& share) {
  if (task.layer < 0 || layer_of(task, share).kind != LayerKind::block) return "";
  return " (layer " + std::to_string(layer_of(task, share).number) + ")";
}

std::string number(double value) {
  return formatted("%.2f", value);
}

class Drawing {
 public:
  Drawing(const MemoryCourse& course, std::size_t usable)
      : course_(course),
        columns_(columns_of(course)),
        wide_(std::clamp(900.0 / static_cast<double>(columns_.size()), 0.75, 12.0)),
        most_(static_cast<double>(std::max(course.bytes(course.peak), usable))) {}

  std::string svg(const std::string& title, const std::string& peak, std::size_t usable) {
    const double width = left + wide_ * static_cast<double>(columns_.size()) + right, height = top + tall + 60;
    text_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width) + "\" height=\"" + number(height) +
            "\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
    label(8, 18, title, "font-size=\"13\"");
    scale();
    stack();
    if (usable > 0) line(static_cast<double>(usable), "#444", "usable, " + format_bytes(usable));
    strip();
    mark(peak);
    return text_ + "</svg>\n";
  }

 private:
  static constexpr double left = 84, right = 240, top = 46, tall = 320;

  double y(double bytes) const { return top + tall * (1 - bytes / most_); }
  double x(std::size_t column) const { return left + wide_ * static_cast<double>(column); }
  void label(double at, double down, const std::string& words, const std::string& more = "") {
    text_ +=
        "<text x=\"" + number(at) + "\" y=\"" + number(down) + "\" " + more + ">" + xml_escaped(words) + "</text>\n";
  }
  void box(double at, double down, double width, double height, std::string_view colour) {
    text_ += "<rect x=\"" + number(at) + "\" y=\"" + number(down) + "\" width=\"" + number(width) + "\" height=\"" +
             number(height) + "\" fill=\"" + std::string(colour) + "\"/>\n";
  }
  void line(double bytes, const char* colour, const std::string& words) {
    text_ += "<line x1=\"" + number(left) + "\" x2=\"" + number(x(columns_.size())) + "\" y1=\"" + number(y(bytes)) +
             "\" y2=\"" + number(y(bytes)) + "\" stroke=\"" + colour + "\" stroke-dasharray=\"4 3\"/>\n";
    label(left + 4, y(bytes) - 3, words);
  }
  // Powers of two, four to eight of them.
  void scale() {
    const double step = std::exp2(std::ceil(std::log2(most_ / 8)));
    for (double at = 0; at <= most_; at += step) {
      text_ += "<line x1=\"" + number(left - 4) + "\" x2=\"" + number(left) + "\" y1=\"" + number(y(at)) + "\" y2=\"" +
               number(y(at)) + "\" stroke=\"#444\"/>\n";
      label(left - 8, y(at) + 4, format_bytes(static_cast<std::size_t>(at)), "text-anchor=\"end\"");
    }
  }
  // Each layer as steps, with its name and its bytes at the peak.
  void stack() {
    std::vector<std::size_t> below(columns_.size());
    double named = top + 12;
    for (const Layer& layer : layers) {
      std::string upper, lower;
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        const std::size_t from = below[i];
        below[i] += bytes_of(course_, layer, columns_[i]);
        const auto point = [&](std::size_t column, std::size_t bytes) {
          return number(x(column)) + "," + number(y(static_cast<double>(bytes))) + " ";
        };
        upper += point(i, below[i]) + point(i + 1, below[i]);
        lower = point(i + 1, from) + point(i, from) + lower;
      }
      const std::size_t at_peak = bytes_of(course_, layer, course_.peak);
      const std::string words = std::string(layer.name) + " " + std::to_string(at_peak) + " B";
      text_ += "<polygon points=\"" + upper + lower + "\" fill=\"" + layer.colour + "\"><title>" + words +
               " at the peak</title></polygon>\n";
      box(x(columns_.size()) + 12, named - 9, 10, 10, layer.colour);
      label(x(columns_.size()) + 28, named, std::string(layer.name) + ", " + format_bytes(at_peak));
      named += 18;
    }
  }
  // What the tasks are: of forward, of backward, around them.
  void strip() {
    for (std::size_t i = 0; i < columns_.size();) {
      std::size_t end = i;
      const std::string_view colour = colour_of(course_.tasks[columns_[i]]);
      while (end < columns_.size() && colour == colour_of(course_.tasks[columns_[end]])) ++end;
      box(x(i), top + tall + 6, x(end) - x(i), 8, colour);
      i = end;
    }
    label(left, top + tall + 30,
          "tasks of a step, " + std::to_string(course_.tasks.size()) +
              ": forward blue, backward orange, around them grey");
  }
  void mark(const std::string& peak) {
    const auto at = std::find(columns_.begin(), columns_.end(), course_.peak) - columns_.begin();
    const double middle = x(to_size(at)) + wide_ / 2;
    text_ += "<line x1=\"" + number(middle) + "\" x2=\"" + number(middle) + "\" y1=\"" + number(top - 8) + "\" y2=\"" +
             number(top + tall) + "\" stroke=\"#000\"/>\n";
    label(8, top - 12, peak);
  }

  const MemoryCourse& course_;
  std::vector<std::size_t> columns_;
  double wide_, most_;
  std::string text_;
};

}  // namespace

std::string memory_svg(const RunSetup& setup, const MemoryCourse& course, const std::string& title,
                       std::size_t usable) {
  const Task& task = course.tasks[course.peak];
  const std::size_t bytes = course.bytes(course.peak);
  const std::string peak = "peak " + format_bytes(bytes) + " (" + std::to_string(bytes) + " B) in task " +
                           std::to_string(course.peak) + ", " + text_of_task(task) + ": " +
                           phase_of(task, setup.share) + layer_text(task, setup.share);
  return Drawing(course, usable).svg(title, peak, usable);
}

}  // namespace forge
