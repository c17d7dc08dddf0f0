#include "train/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/bytes.hpp"
#include "core/json.hpp"

namespace forge {

namespace {

// {"name": {"loss": …}, …}
std::string to_json(const std::vector<SourceReport>& sources) {
  JsonLine all;
  for (const SourceReport& s : sources)
    all.add(s.name,
            JsonLine().add("loss", s.loss).add("labels", s.labels).add("tokens", s.tokens).add("epochs", s.epochs));
  return all.json();
}

// {"name": {"weights": …, "update": …}, …}
std::string to_json(const std::vector<NormReport>& norms) {
  JsonLine all;
  for (const NormReport& unit : norms)
    all.add(unit.unit, JsonLine().add("weights", unit.weights).add("update", unit.update));
  return all.json();
}

// {"qkv": {"x": {"overflow": …, "underflow": …}, …}, …}
std::string to_json(const std::vector<RoundingReport>& shares) {
  JsonLine all;
  for (std::size_t i = 0; i < shares.size();) {
    const std::string& product = shares[i].product;
    JsonLine tensors;
    for (; i < shares.size() && shares[i].product == product; ++i)
      tensors.add(shares[i].tensor,
                  JsonLine().add("overflow", shares[i].overflow).add("underflow", shares[i].underflow));
    all.add(product, tensors);
  }
  return all.json();
}

// {"median": …, "slow": 1, "slow_ranks": [{"rank": …, "node": …, "of_median": …}]}, the slowest ones.
JsonLine json_of(const ComputationReport& computation) {
  constexpr std::size_t most = 64;
  std::vector<JsonLine> ranks;
  for (const SlowRank& r : computation.slow) {
    if (ranks.size() == most) break;
    ranks.push_back(JsonLine().add("rank", r.rank).add("node", r.node).add("of_median", r.of_median));
  }
  return JsonLine()
      .add("median", computation.median)
      .add("slow", static_cast<std::int64_t>(computation.slow.size()))
      .add_raw("slow_ranks", json_of(ranks));
}

}  // namespace

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

std::string sources_line(const std::vector<SourceReport>& sources) {
  std::string line;
  for (const SourceReport& source : sources) {
    const std::string loss = source.labels > 0 ? formatted("%.4f", source.loss) : "-";
    line += formatted("%s%s %s (%.3g epochs)", line.empty() ? "            " : ", ", source.name.c_str(), loss.c_str(),
                      source.epochs);
  }
  return line.empty() ? "" : line + "\n";
}

std::string pairs_line(const std::optional<PairReport>& pairs) {
  if (!pairs) return "";
  return formatted("            pairs: margin %.4f, accuracy %.3f\n", pairs->margin, pairs->accuracy);
}

std::string to_json(const StartTimes& start) {
  JsonLine json;
  for (const auto& [name, seconds] : start) json.add(name, std::round(seconds * 1000) / 1000);
  return json.json();
}

std::string slow_ranks_line(const std::vector<SlowRank>& slow) {
  constexpr std::size_t most = 4;
  std::string line;
  for (std::size_t i = 0; i < std::min(slow.size(), most); ++i) {
    line += (i == 0 ? "            slow ranks: " : ", ") + std::to_string(slow[i].rank);
    if (!slow[i].node.empty()) line += " on " + slow[i].node;
    line += formatted(i == 0 ? " (%.2f times the median's computation)" : " (%.2f times)", slow[i].of_median);
  }
  if (slow.size() > most) line += ", " + std::to_string(slow.size() - most) + " more";
  return line.empty() ? "" : line + "\n";
}

std::string to_json(const StepRecord& r) {
  JsonLine line;
  line.add("step", r.step).add("time", r.time).add("elapsed_seconds", r.elapsed_seconds).add("tokens", r.tokens);
  if (r.sequences) line.add("sequences", *r.sequences);
  line.add("loss", r.loss).add("total_loss", r.total_loss);
  if (r.mtp_loss) line.add("mtp_loss", *r.mtp_loss);
  if (r.pairs) line.add("reward_margin", r.pairs->margin).add("reward_accuracy", r.pairs->accuracy);
  line.add("grad_norm", r.grad_norm).add("learning_rate", r.learning_rate).add("step_seconds", r.step_seconds);
  line.add("tokens_per_second", r.tokens_per_second).add("mfu", r.mfu).add("peak_bytes", r.peak_bytes);
  line.add("updated", r.updated());
  if (!r.spike.empty()) line.add("spike", r.spike);
  if (!r.start.empty()) line.add_raw("start_seconds", to_json(r.start));
  if (r.logits) line.add("largest_logit", r.logits->largest).add("clipped_heads", r.logits->clipped_heads);
  if (!r.norms.empty()) line.add_raw("norms", to_json(r.norms));
  if (!r.rounding.empty()) line.add_raw("fp8", to_json(r.rounding));
  if (!r.routers.empty()) line.add_raw("experts", to_json(r.routers));
  if (!r.sources.empty()) line.add_raw("sources", to_json(r.sources));
  if (r.computation) line.add("computation", json_of(*r.computation));
  return line.text();
}

}  // namespace forge
