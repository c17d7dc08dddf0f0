#include "nn/units.plan.hpp"

#include "config/family.hpp"
#include "hf/config.hpp"
#include "nn/block.plan.hpp"
#include "nn/embedding.plan.hpp"
#include "nn/head.plan.hpp"

namespace forge {

std::vector<Unit> parameter_units(const ModelSpec& spec) {
  using P = const float;  // any type has the same list
  std::vector<Unit> units;
  const auto add = [&]<class Members>(UnitKind kind, std::int64_t layer, const std::string& name, Members) {
    units.push_back(declare_unit<Members>(spec, kind, layer, name));
  };
  add(UnitKind::token_table, -1, "embedding", EmbeddingParameters<P>());
  if (!spec.rope()) add(UnitKind::position_table, -1, "embedding", EmbeddingParameters<P>());
  for (std::int64_t layer = 0; layer < spec.L() + spec.options.mtp_depth; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    add(UnitKind::block, layer, name, BlockParameters<P>());
    if (spec.is_moe(layer)) add(UnitKind::experts, layer, name, BlockParameters<P>());
    if (has_adapters(spec, layer)) add(UnitKind::adapter, layer, name, BlockParameters<P>());
    if (spec.is_moe(layer) && has_expert_adapters(spec))
      add(UnitKind::expert_adapter, layer, name, BlockParameters<P>());
  }
  if (!spec.options.tied_embeddings) add(UnitKind::output, -1, "head", HeadParameters<P>());
  add(UnitKind::final_norm, -1, "head", HeadParameters<P>());
  return units;
}

std::string export_obstacle(const ModelDeck& model, const std::vector<Unit>& units) {
  std::string obstacle = hf_obstacle(model);
  for (const Unit& unit : units)
    for (const Parameter& p : unit.parameters)
      if (obstacle.empty() && p.hf_name.empty())
        obstacle =
            std::string("Hugging Face models of family ") + name_of(model.family) + " have no parameter " + p.name;
  return obstacle;
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
    n += is_of_experts(unit.kind) ? elements / spec.E() * spec.experts_per_token() : elements;
  }
  return n;
}

}  // namespace forge
