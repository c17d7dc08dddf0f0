
#include "core/bytes.hpp"
#include "core/json.hpp"
#include "report/reported_run.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

using Run = ThinnedSeries::Run;

// {"steps": […], "values": […]}: what the quantity has reached.
std::string reached(const ThinnedSeries& series) {
  return JsonLine()
      .add_raw("steps", json_of_runs(series.runs(), [](const Run& r) { return json_of(r.last_step); }))
      .add_raw("values", json_of_runs(series.runs(), [](const Run& r) { return json_of(r.last); }))
      .json();
}

// A row for each of the map's values.
template <class Map, class F>
std::string rows_of(const Map& map, F f) {
  std::string all;
  for (const auto& [key, value] : map) all += (all.empty() ? "" : ",\n") + f(value);
  return "[" + all + "]";
}

std::string number(double value) {
  return formatted("%.5g", value);
}

// Of a run of steps the worst: the largest and the least load, the least entropy, the largest dropped share.
std::string loads_json(const std::map<std::int64_t, LayerLoads>& loads) {
  if (loads.empty()) return "null";
  std::vector<std::int64_t> layers;
  for (const auto& [layer, values] : loads) layers.push_back(layer);
  const auto high = [](const Run& r) { return number(r.high); };
  const auto low = [](const Run& r) { return number(r.low); };
  JsonLine line;
  line.add("rows", layers);
  line.add_raw("steps",
               json_of_runs(loads.begin()->second.load_max.runs(), [](const Run& r) { return json_of(r.last_step); }));
  line.add_raw("load_max", rows_of(loads, [&](const LayerLoads& l) { return json_of_runs(l.load_max.runs(), high); }));
  line.add_raw("load_min", rows_of(loads, [&](const LayerLoads& l) { return json_of_runs(l.load_min.runs(), low); }));
  line.add_raw("entropy", rows_of(loads, [&](const LayerLoads& l) { return json_of_runs(l.entropy.runs(), low); }));
  line.add_raw("dropped_share",
               rows_of(loads, [&](const LayerLoads& l) { return json_of_runs(l.dropped_share.runs(), high); }));
  return line.json();
}

std::string norms_json(const std::map<std::string, UnitNorms>& norms) {
  if (norms.empty()) return "null";
  std::vector<std::string> units;
  for (const auto& [unit, values] : norms) units.push_back(unit);
  const auto mean = [](const Run& r) { return number(r.mean()); };
  JsonLine line;
  line.add("rows", units);
  line.add_raw("steps",
               json_of_runs(norms.begin()->second.weights.runs(), [](const Run& r) { return json_of(r.last_step); }));
  line.add_raw("weights", rows_of(norms, [&](const UnitNorms& n) { return json_of_runs(n.weights.runs(), mean); }));
  line.add_raw("update", rows_of(norms, [&](const UnitNorms& n) { return json_of_runs(n.update.runs(), mean); }));
  return line.json();
}

std::vector<std::string> texts_of(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const std::string& text : texts)
    all.push_back(replace_ill_formed(text.substr(0, text.find_last_not_of('\n') + 1)));
  return all;
}

}  // namespace

std::string json_of_run(const ReportedRun& run) {
  JsonLine series, line;
  for (const auto& [name, values] : run.series) series.add(name, values);
  line.add("name", replace_ill_formed(run.name)).add("path", replace_ill_formed(run.path));
  line.add("notes", texts_of(run.notes));
  line.add("first_step", run.first_step).add("last_step", run.last_step).add("steps", run.steps);
  line.add_raw("tokens", reached(run.tokens)).add_raw("seconds", reached(run.seconds));
  line.add("series", series).add_raw("experts", loads_json(run.loads)).add_raw("norms", norms_json(run.norms));
  line.add("events", run.events).add_raw("event_counts", run.events.counts_json());
  std::vector<JsonLine> phases;
  for (const auto& [phase, seconds] : run.phases)
    phases.push_back(JsonLine().add("name", phase).add("seconds", seconds));
  line.add("phases", phases).add("memory", run.memory_line).add("samples", texts_of(run.samples));
  return line.add_raw("job", run.job.empty() ? "null" : run.job).add("deck", run.deck).lines();
}

}  // namespace forge
