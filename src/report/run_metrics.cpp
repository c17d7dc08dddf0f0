#include <cmath>
#include <optional>

#include "config/file_lines.hpp"
#include "core/bytes.hpp"
#include "hf/json_input.hpp"
#include "report/reported_run.hpp"

namespace forge {

namespace {

using nlohmann::json;

constexpr std::size_t most_series = 400, most_units = 2000, most_layers = 2000;

class MetricsReader {
 public:
  MetricsReader(const std::string& file, ReportedRun& run) : file_(file), run_(run) {}

  void read() {
    const FileHandle file = FileHandle::open_to_read(file_, "the metrics");
    const std::uint64_t end = for_each_line(file, [&](const std::string& line, std::uint64_t) {
      ++line_;
      add(line);
    });
    if (end < file.size())
      run_.notes.push_back(
          "The last line of metrics.jsonl has no end: the job was killed, or writes, at this moment. " +
          std::string("It is left out."));
    note(torn_, "not JSON as forge writes it: a job was killed while it wrote");
    note(disordered_, "no line of a step behind the one before");
    if (left_out_ > 0)
      run_.notes.push_back("metrics.jsonl has more quantities than a report holds: " + std::to_string(left_out_) +
                           " values are left out.");
  }

 private:
  struct BadLines {
    std::int64_t count = 0, first = 0;
  };
  void count(BadLines& lines) const {
    if (lines.count++ == 0) lines.first = line_;
  }
  void note(const BadLines& lines, const char* why) const {
    if (lines.count > 0)
      run_.notes.push_back("metrics.jsonl: " + counted(lines.count, "line") + (lines.count > 1 ? " are " : " is ") +
                           why + "; left out (the first is line " + std::to_string(lines.first) + ").");
  }

  void add(const std::string& text) {
    try {
      const json line = parse_json(text, file_, {});
      const auto step = line.find("step");
      if (step == line.end() || !step->is_number_integer() || step->get<std::int64_t>() < 0) return count(disordered_);
      line.contains("step_seconds") || line.contains("loss") ? add_step(line, step->get<std::int64_t>())
                                                             : add_numbers(line, step->get<std::int64_t>());
    } catch (const BadInput&) {
      count(torn_);
    } catch (const json::exception&) {  // another type than forge writes
      count(torn_);
    }
  }

  static std::optional<double> number(const json& object, const char* key) {
    const auto at = object.find(key);
    if (at == object.end() || !at->is_number()) return {};
    const double value = at->get<double>();
    return std::isfinite(value) ? std::optional(value) : std::nullopt;
  }
  static void add(ThinnedSeries& series, std::int64_t step, std::optional<double> value) {
    if (value) series.add(step, *value);
  }

  // An entry of a map with bounded size; null where there is no room.
  template <class Map>
  typename Map::mapped_type* entry(Map& map, const typename Map::key_type& key, std::size_t most) {
    const auto at = map.find(key);
    if (at != map.end()) return &at->second;
    if (map.size() >= most) return ++left_out_, nullptr;
    return &map[key];
  }
  void add(const std::string& name, std::int64_t step, std::optional<double> value) {
    if (!value) return;
    if (ThinnedSeries* series = entry(run_.series, name, most_series)) series->add(step, *value);
  }

  // Every number of a line; of a validation by its set.
  void add_numbers(const json& line, std::int64_t step) {
    const auto set = line.find("set");
    const std::string end = set != line.end() && set->is_string() ? "/" + set->get<std::string>() : "";
    for (const auto& [key, value] : line.items())
      if (value.is_number() && key != "step" && key != "time" && key != "elapsed_seconds" && key != "tokens")
        add(key + end, step, number(line, key.c_str()));
  }

  void add_step(const json& line, std::int64_t step) {
    if (run_.steps > 0 && step <= run_.last_step) return count(disordered_);
    if (run_.steps++ == 0) run_.first_step = step;
    run_.last_step = step;
    add_numbers(line, step);
    add(run_.tokens, step, number(line, "tokens"));
    trained_ += number(line, "step_seconds").value_or(0);
    run_.seconds.add(step, number(line, "elapsed_seconds").value_or(trained_));
    if (line.contains("experts")) add_experts(line["experts"], step);
    if (line.contains("norms")) add_norms(line["norms"], step);
    if (line.contains("sources")) add_sources(line["sources"], step);
    add_events(line, step);
  }

  void add_experts(const json& layers, std::int64_t step) {
    for (const json& layer : layers) {
      const auto place = number(layer, "layer");
      LayerLoads* loads = place ? entry(run_.loads, static_cast<std::int64_t>(*place), most_layers) : nullptr;
      if (!loads) continue;
      add(loads->load_max, step, number(layer, "load_max"));
      add(loads->load_min, step, number(layer, "load_min"));
      add(loads->entropy, step, number(layer, "entropy"));
      add(loads->dropped_share, step, number(layer, "dropped_share"));
    }
  }

  void add_norms(const json& units, std::int64_t step) {
    for (const auto& [name, norms] : units.items()) {
      UnitNorms* unit = entry(run_.norms, name, most_units);
      if (!unit) continue;
      add(unit->weights, step, number(norms, "weights"));
      add(unit->update, step, number(norms, "update"));
    }
  }

  void add_sources(const json& sources, std::int64_t step) {
    for (const auto& [name, source] : sources.items()) add("sources/" + name + "/loss", step, number(source, "loss"));
  }

  void add_events(const json& line, std::int64_t step) {
    const auto updated = line.find("updated");
    const std::string spike = line.value("spike", "");
    if (!spike.empty()) run_.events.add({"spike", spike, step});
    if (updated != line.end() && *updated == false && spike.empty())
      run_.events.add({"skipped", "loss or gradient norm was NaN or Inf: no update", step});
    if (line.contains("start_seconds")) {
      double seconds = 0;
      for (const auto& [name, value] : line["start_seconds"].items())
        seconds += value.is_number() ? value.get<double>() : 0;
      run_.events.add({step == run_.first_step && step == 1 ? "start" : "restart",
                       format_seconds(seconds) + " before this job's first step", step});
    }
    const auto computation = line.find("computation");
    if (computation != line.end() && number(*computation, "slow").value_or(0) > 0) add_slow_ranks(*computation, step);
  }

  void add_slow_ranks(const json& computation, std::int64_t step) {
    constexpr std::size_t most = 4;
    std::string text;
    std::size_t named = 0;
    for (const json& rank : computation.value("slow_ranks", json::array())) {
      if (named++ == most) break;
      const std::string node = rank.value("node", "");
      text += (text.empty() ? "rank " : ", ") + std::to_string(rank.value("rank", 0)) +
              (node.empty() ? "" : " on " + node) + formatted(" (%.2f times the median)", rank.value("of_median", 0.0));
    }
    run_.events.add({"slow ranks", text, step});
  }

  std::string file_;
  ReportedRun& run_;
  std::int64_t line_ = 0, left_out_ = 0;
  BadLines torn_, disordered_;
  double trained_ = 0;  // seconds of steps so far
};

}  // namespace

void read_run_metrics(const std::string& file, ReportedRun& run) {
  MetricsReader(file, run).read();
}

}  // namespace forge
