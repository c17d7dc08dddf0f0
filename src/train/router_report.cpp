#include "train/router_report.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/bytes.hpp"
#include "core/json.hpp"

namespace forge {

double RouterReport::assignments() const {
  return std::accumulate(load.begin(), load.end(), 0.0);
}

double RouterReport::load_min() const {
  const double sum = assignments();
  return sum > 0 ? *std::min_element(load.begin(), load.end()) * static_cast<double>(load.size()) / sum : 0;
}

double RouterReport::load_max() const {
  const double sum = assignments();
  return sum > 0 ? *std::max_element(load.begin(), load.end()) * static_cast<double>(load.size()) / sum : 0;
}

double RouterReport::entropy() const {
  const double sum = assignments();
  if (load.size() < 2 || sum == 0) return 1;
  double entropy = 0;
  for (const double n : load)
    if (n > 0) entropy -= n / sum * std::log(n / sum);
  return entropy / std::log(static_cast<double>(load.size()));
}

std::string to_json(const std::vector<RouterReport>& routers) {
  std::vector<JsonLine> list;
  for (const RouterReport& r : routers) {
    JsonLine line;
    line.add("layer", r.layer).add("load_min", r.load_min()).add("load_max", r.load_max()).add("entropy", r.entropy());
    line.add("dropped_share", r.dropped_fraction()).add("bias_min", r.bias_min).add("bias_max", r.bias_max);
    list.push_back(line.add("balance_loss", r.balance_loss).add("z_loss", r.z_loss));
  }
  return json_of(list);
}

std::string routers_line(const std::vector<RouterReport>& routers) {
  if (routers.empty()) return "";
  const RouterReport* heaviest = &routers.front();
  double least = heaviest->load_min(), entropy = 0, dropped = 0, assignments = 0, balance = 0, z = 0;
  double bias_min = heaviest->bias_min, bias_max = heaviest->bias_max;
  for (const RouterReport& r : routers) {
    if (r.load_max() > heaviest->load_max()) heaviest = &r;
    least = std::min(least, r.load_min());
    entropy += r.entropy() / static_cast<double>(routers.size());
    dropped += r.dropped;
    assignments += r.assignments();
    balance += r.balance_loss;
    z += r.z_loss;
    bias_min = std::min(bias_min, r.bias_min);
    bias_max = std::max(bias_max, r.bias_max);
  }
  std::string text = formatted("            experts: load %.2f to %.2f of the mean (most in layer %lld), entropy %.3f",
                               least, heaviest->load_max(), static_cast<long long>(heaviest->layer), entropy);
  if (dropped > 0) text += formatted(", dropped %.2f %%", 100 * dropped / assignments);
  if (bias_min != 0 || bias_max != 0) text += formatted(", bias %.3g to %.3g", bias_min, bias_max);
  if (balance > 0) text += formatted(", auxiliary loss %.3f a layer", balance / static_cast<double>(routers.size()));
  if (z > 0) text += formatted(", z-loss %.3f a layer", z / static_cast<double>(routers.size()));
  return text + "\n";
}

}  // namespace forge
