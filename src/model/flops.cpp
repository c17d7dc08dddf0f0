#include "model/flops.hpp"

#include <algorithm>

namespace forge {

double mean_keys(std::int64_t sequence_tokens, std::int64_t window) {
  const double t = static_cast<double>(sequence_tokens);
  const double w = window > 0 ? std::min(static_cast<double>(window), t) : t;
  // Query i sees min(i + 1, w) keys: a triangle of w rows, then a band.
  return (w * (w + 1) / 2 + (t - w) * w) / t;
}

namespace {

double of_product(std::int64_t in, std::int64_t out) {
  return 2.0 * static_cast<double>(in) * static_cast<double>(out);
}

// The state is read by k, changed, and read by q; with the convolution.
double delta_rule_flops(const ModelSpec& s) {
  return 3 * of_product(s.options.linear_key_dim, s.linear_values()) +
         of_product(s.options.linear_conv_taps, s.linear_channels());
}

}  // namespace

std::vector<FlopsLine> forward_flops_per_token(const ModelSpec& s, std::int64_t sequence_tokens) {
  const std::int64_t depth = s.options.mtp_depth;
  const double layers = static_cast<double>(s.L() + depth);
  const double moe = static_cast<double>(s.moe_layers() + (s.is_moe(s.L()) ? depth : 0));
  auto feed_forward = [&](std::int64_t ffn) { return of_product(s.C(), s.up_columns(ffn)) + of_product(ffn, s.C()); };
  double attention = 0, linear = 0;
  for (std::int64_t layer = 0; layer < s.L() + depth; ++layer)
    if (s.linear(layer))
      ++linear;
    else
      attention += of_product(s.q_columns() + s.o_columns(), 1) * mean_keys(sequence_tokens, s.window(layer));
  double projections = of_product(s.C(), s.projected_columns());
  if (s.mla())
    projections = of_product(s.C(), s.q_lora()) + of_product(s.q_up_inputs(), s.q_columns()) +
                  of_product(s.C(), s.kv_down_columns()) + of_product(s.kv_lora(), s.kv_up_columns());
  std::vector<FlopsLine> lines = {{"q, k, v projections", (layers - linear) * projections},
                                  {"attention", attention},
                                  {"attention output", (layers - linear) * of_product(s.o_columns(), s.C())},
                                  {"feed-forward", (layers - moe) * feed_forward(s.F())}};
  if (linear > 0) {
    lines.push_back({"DeltaNet projections", linear * of_product(s.C(), s.linear_columns() + s.linear_values())});
    lines.push_back({"delta rule", linear * delta_rule_flops(s)});
  }
  if (s.E() > 0) {
    const double shared = feed_forward(s.Fs()) + (s.options.shared_expert_gate ? of_product(s.C(), 1) : 0);
    lines.push_back({"router", moe * of_product(s.C(), s.E())});
    lines.push_back({"experts", moe * static_cast<double>(s.experts_per_token()) * feed_forward(s.Fe())});
    lines.push_back({"shared experts", moe * shared});
  }
  if (depth > 0)
    lines.push_back({"multi-token projections", static_cast<double>(depth) * of_product(2 * s.C(), s.C())});
  lines.push_back({"output head", static_cast<double>(1 + depth) * of_product(s.C(), s.V())});
  return lines;
}

namespace {

// Forward, of a unit's products: of the experts those that the token goes to; a table that nothing multiplies has none.
double product_flops(const ModelSpec& s, const Unit& unit) {
  const bool looked_up = unit.kind == UnitKind::token_table && !s.options.tied_embeddings;
  if (looked_up || unit.kind == UnitKind::position_table) return 0;
  std::int64_t elements = 0;
  for (const Parameter& p : unit.parameters)
    if (p.shape.size() == 2) elements += p.elements();
  const double all = 2 * static_cast<double>(elements);
  return is_of_experts(unit.kind) ? all * static_cast<double>(s.experts_per_token()) / static_cast<double>(s.E()) : all;
}

// The lowest layer with something to train; 0 where a table below it is trained, L where none of the layers is.
std::int64_t lowest_trained(const ModelSpec& s, const std::vector<Unit>& units) {
  std::int64_t lowest = s.L();
  for (const Unit& unit : units) {
    if (unit.frozen || unit.kind == UnitKind::output || unit.kind == UnitKind::final_norm) continue;
    lowest = std::min(lowest, std::max<std::int64_t>(unit.layer, 0));
  }
  return lowest;
}

}  // namespace

double adapter_flops_per_token(const ModelSpec& s, const std::vector<Unit>& units) {
  double sum = 0;
  for (const Unit& unit : units)
    if (is_adapter(unit.kind)) sum += product_flops(s, unit);
  return sum;
}

double training_flops_per_token(const ModelSpec& s, const std::vector<Unit>& units, std::int64_t sequence_tokens) {
  double sum = 3 * adapter_flops_per_token(s, units);
  for (const auto& line : forward_flops_per_token(s, sequence_tokens)) sum += 3 * line.forward;
  const std::int64_t lowest = lowest_trained(s, units);
  for (const Unit& unit : units) {
    if (!unit.frozen) continue;
    const bool idle = unit.layer >= 0 && unit.layer < lowest;
    sum -= (idle ? 2 : 1) * product_flops(s, unit);
    if (!idle || unit.kind != UnitKind::block) continue;
    sum -= s.linear(unit.layer) ? 2 * delta_rule_flops(s)
                                : 4 * static_cast<double>(s.q_columns() + s.o_columns()) *
                                      mean_keys(sequence_tokens, s.window(unit.layer));
  }
  return sum;
}

}  // namespace forge
