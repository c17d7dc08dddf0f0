#include "nn/units.plan.hpp"

#include "nn/block.plan.hpp"
#include "nn/embedding.plan.hpp"
#include "nn/head.plan.hpp"
#include "nn/moe.plan.hpp"

namespace forge {

std::vector<Unit> parameter_units(const ModelSpec& spec) {
  std::vector<Unit> units;
  units.push_back(token_table_unit(spec));
  if (!spec.rope()) units.push_back(position_table_unit(spec));
  for (std::int64_t layer = 0; layer < spec.L() + spec.options.mtp_depth; ++layer) {
    units.push_back(block_unit(spec, layer));
    if (spec.is_moe(layer)) units.push_back(experts_unit(spec, layer));
  }
  if (!spec.options.tied_embeddings) units.push_back(output_unit(spec));
  units.push_back(final_norm_unit(spec));
  return units;
}

std::vector<RouterBias> router_biases(const ModelSpec& spec) {
  std::vector<RouterBias> biases;
  if (!spec.options.router_bias) return biases;
  for (std::int64_t layer = 0; layer < spec.L() + spec.options.mtp_depth; ++layer)
    if (spec.is_moe(layer)) biases.push_back(router_bias_of(spec, layer));
  return biases;
}

std::int64_t active_parameter_count(const ModelSpec& spec) {
  std::int64_t n = 0;
  for (const auto& unit : parameter_units(spec)) {
    if (unit.layer >= spec.L() || unit.kind == UnitKind::position_table) continue;
    if (unit.kind == UnitKind::token_table && !spec.options.tied_embeddings) continue;
    const std::int64_t elements = parameter_count({unit});
    n += unit.kind == UnitKind::experts ? elements / spec.E() * spec.experts_per_token() : elements;
  }
  return n;
}

}  // namespace forge
