#include "train/metrics.hpp"

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

}  // namespace

std::string sources_line(const std::vector<SourceReport>& sources) {
  std::string line;
  for (const SourceReport& source : sources) {
    const std::string loss = source.labels > 0 ? formatted("%.4f", source.loss) : "-";
    line += formatted("%s%s %s (%.3g epochs)", line.empty() ? "            " : ", ", source.name.c_str(), loss.c_str(),
                      source.epochs);
  }
  return line.empty() ? "" : line + "\n";
}

std::string to_json(const StepRecord& r) {
  JsonLine line;
  line.add("step", r.step).add("time", r.time).add("elapsed_seconds", r.elapsed_seconds).add("tokens", r.tokens);
  if (r.sequences) line.add("sequences", *r.sequences);
  line.add("loss", r.loss).add("total_loss", r.total_loss);
  if (r.mtp_loss) line.add("mtp_loss", *r.mtp_loss);
  line.add("grad_norm", r.grad_norm).add("learning_rate", r.learning_rate).add("step_seconds", r.step_seconds);
  line.add("tokens_per_second", r.tokens_per_second).add("mfu", r.mfu).add("peak_bytes", r.peak_bytes);
  line.add("updated", r.finite);
  if (r.logits) line.add("largest_logit", r.logits->largest).add("clipped_heads", r.logits->clipped_heads);
  if (!r.norms.empty()) line.add_raw("norms", to_json(r.norms));
  if (!r.rounding.empty()) line.add_raw("fp8", to_json(r.rounding));
  if (!r.routers.empty()) line.add_raw("experts", to_json(r.routers));
  if (!r.sources.empty()) line.add_raw("sources", to_json(r.sources));
  return line.text();
}

}  // namespace forge
