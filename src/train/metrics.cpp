#include "train/metrics.hpp"

#include <cmath>
#include <cstdio>

#include "core/bytes.hpp"

namespace forge {

namespace {

// As a member of another object.
std::string object_of(const JsonLine& line) {
  std::string text = line.text();
  text.pop_back();
  return text;
}

// {"name": {"loss": …}, …}
std::string to_json(const std::vector<SourceReport>& sources) {
  JsonLine all;
  for (const SourceReport& source : sources) {
    JsonLine line;
    line.add("loss", source.loss).add("labels", source.labels).add("tokens", source.tokens);
    line.add("epochs", source.epochs);
    all.add_raw(source.name, object_of(line));
  }
  return object_of(all);
}

// {"name": {"weights": …, "update": …}, …}
std::string to_json(const std::vector<NormReport>& norms) {
  JsonLine all;
  for (const NormReport& unit : norms)
    all.add_raw(unit.unit, object_of(JsonLine().add("weights", unit.weights).add("update", unit.update)));
  return object_of(all);
}

// {"qkv": {"x": {"overflow": …, "underflow": …}, …}, …}
std::string to_json(const std::vector<Fp8Report>& shares) {
  JsonLine all;
  for (std::size_t i = 0; i < shares.size();) {
    const std::string& product = shares[i].product;
    JsonLine tensors;
    for (; i < shares.size() && shares[i].product == product; ++i)
      tensors.add_raw(shares[i].tensor,
                      object_of(JsonLine().add("overflow", shares[i].overflow).add("underflow", shares[i].underflow)));
    all.add_raw(product, object_of(tensors));
  }
  return object_of(all);
}

}  // namespace

std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned char>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string sources_line(const std::vector<SourceReport>& sources) {
  std::string line;
  for (const SourceReport& source : sources) {
    char loss[32] = "-", text[160];
    if (source.labels > 0) std::snprintf(loss, sizeof loss, "%.4f", source.loss);
    std::snprintf(text, sizeof text, "%s%s %s (%.3g epochs)", line.empty() ? "            " : ", ", source.name.c_str(),
                  loss, source.epochs);
    line += text;
  }
  return line.empty() ? "" : line + "\n";
}

JsonLine& JsonLine::add_raw(const std::string& key, const std::string& value) {
  body_ += (body_.empty() ? "" : ", ") + json_text(key) + ": " + value;
  ends_.push_back(body_.size());
  return *this;
}
JsonLine& JsonLine::add_object(const std::string& key, const JsonLine& members) {
  return add_raw(key, object_of(members));
}

JsonLine& JsonLine::add(const std::string& key, double value) {
  return add_raw(key, std::isfinite(value) ? format_exact(value) : "null");
}
JsonLine& JsonLine::add(const std::string& key, std::int64_t value) {
  return add_raw(key, std::to_string(value));
}
JsonLine& JsonLine::add(const std::string& key, const std::string& value) {
  return add_raw(key, json_text(value));
}
JsonLine& JsonLine::add(const std::string& key, bool value) {
  return add_raw(key, value ? "true" : "false");
}

std::string JsonLine::text() const {
  return "{" + body_ + "}\n";
}

std::string JsonLine::lines() const {
  std::string all = "{";
  std::size_t begin = 0;
  for (const std::size_t end : ends_) {
    all += "\n  " + body_.substr(begin, end - begin) + (end < body_.size() ? "," : "\n");
    begin = end + 2;  // behind ", "
  }
  return all + "}\n";
}

std::string to_json(const StepRecord& r) {
  JsonLine line;
  line.add("step", r.step).add("time", r.time).add("elapsed_seconds", r.elapsed_seconds).add("tokens", r.tokens);
  if (r.sequences) line.add("sequences", *r.sequences);
  line.add("loss", r.loss).add("total_loss", r.total_loss);
  if (r.mtp_loss) line.add("mtp_loss", *r.mtp_loss);
  line.add("grad_norm", r.grad_norm)
      .add("learning_rate", r.learning_rate)
      .add("step_seconds", r.step_seconds)
      .add("tokens_per_second", r.tokens_per_second)
      .add("mfu", r.mfu)
      .add("peak_bytes", r.peak_bytes)
      .add("updated", r.updated);
  if (r.logits) line.add("largest_logit", r.logits->largest).add("clipped_heads", r.logits->clipped_heads);
  if (!r.norms.empty()) line.add_raw("norms", to_json(r.norms));
  if (!r.fp8.empty()) line.add_raw("fp8", to_json(r.fp8));
  if (!r.routers.empty()) line.add_raw("experts", to_json(r.routers));
  if (!r.sources.empty()) line.add_raw("sources", to_json(r.sources));
  return line.text();
}

}  // namespace forge
