#include <algorithm>
#include <utility>

#include "core/json.hpp"
#include "report/reported_run.hpp"

namespace forge {

void RunEvents::add(RunEvent event) {
  Kind& kind = kinds_[event.kind];
  ++kind.count;
  event.number = ++added_;
  if (kind.first.size() < most / 2) return kind.first.push_back(std::move(event));
  if (kind.last.size() == most / 2) kind.last.pop_front();
  kind.last.push_back(std::move(event));
}

std::string RunEvents::json() const {
  std::vector<RunEvent> all;
  for (const auto& [name, kind] : kinds_) {
    all.insert(all.end(), kind.first.begin(), kind.first.end());
    all.insert(all.end(), kind.last.begin(), kind.last.end());
  }
  std::ranges::sort(all, {}, [](const RunEvent& e) { return std::pair(e.step, e.number); });
  std::vector<JsonLine> lines;
  for (const RunEvent& event : all)
    lines.push_back(JsonLine().add("kind", event.kind).add("step", event.step).add("text", event.text));
  return json_of(lines);
}

std::string RunEvents::counts_json() const {
  JsonLine counts;
  for (const auto& [name, kind] : kinds_) counts.add(name, kind.count);
  return counts.json();
}

}  // namespace forge
