#include "layout/stage.hpp"

namespace forge {

std::string_view name_of(LayerKind kind) {
  constexpr std::string_view names[] = {"arrivals", "embedding", "block", "norm", "head", "mtp_input", "departures"};
  return names[to_size(kind)];
}

std::size_t find_unit(const std::vector<LocalUnit>& units, UnitKind kind, std::int64_t layer) {
  for (std::size_t u = 0; u < units.size(); ++u)
    if (units[u].kind == kind && units[u].layer == layer) return u;
  return no_unit;
}

namespace {

// Of stages behind the first all layers have a backward: it hands gradients down.
void mark_frozen(const StageContent& stage, const std::vector<LocalUnit>& units, std::vector<StageLayer>& list) {
  const auto frozen = [&](std::size_t u) { return u != no_unit && units[u].frozen; };
  const auto trains = [&](std::size_t u) { return u != no_unit && !units[u].frozen; };
  bool idle = stage.embedding && !units.empty();
  for (StageLayer& layer : list) {
    layer.frozen = frozen(layer.unit);
    layer.second_frozen = frozen(layer.second);
    const bool adapters = trains(layer.adapter) || trains(layer.expert_adapter);
    idle = idle && !trains(layer.unit) && !trains(layer.second) && !adapters && layer.kind != LayerKind::head;
    layer.idle = idle;
  }
}

}  // namespace

std::vector<StageLayer> stage_layers(const StageContent& stage, const std::vector<LocalUnit>& units,
                                     bool tied_embeddings, std::int64_t recomputed) {
  std::vector<StageLayer> list;
  const auto unit = [&](UnitKind kind, std::int64_t layer = -1) { return find_unit(units, kind, layer); };
  const std::size_t table = unit(UnitKind::token_table);
  const std::size_t output = tied_embeddings ? table : unit(UnitKind::output);
  const auto block = [&](std::int64_t layer, int state) {
    list.push_back({LayerKind::block, layer, state, unit(UnitKind::block, layer), unit(UnitKind::experts, layer)});
    list.back().adapter = unit(UnitKind::adapter, layer);
    list.back().expert_adapter = unit(UnitKind::expert_adapter, layer);
  };
  if (stage.states_in > 1 && stage.ends_model()) list.push_back({LayerKind::arrivals});
  if (stage.embedding) list.push_back({LayerKind::embedding, -1, 0, table, unit(UnitKind::position_table)});
  for (int l = 0; l < stage.layers; ++l) {
    block(stage.layer(l), 0);
    list.back().recomputes_all = l < recomputed;
  }
  if (stage.final_norm()) list.push_back({LayerKind::norm, -1, 0, unit(UnitKind::final_norm)});
  for (int state = 0; stage.head && state < stage.states_in; ++state)
    list.push_back({LayerKind::head, -1, state, output});
  for (int k = 0; k < stage.mtp_layers; ++k) {
    const std::int64_t layer = stage.layer(stage.layers + k);
    const int depth = stage.states_in + k;
    list.push_back({LayerKind::mtp_input, layer, depth, unit(UnitKind::block, layer), table});
    block(layer, depth);
    list.push_back({LayerKind::norm, layer, depth, unit(UnitKind::block, layer)});
    if (stage.head) list.push_back({LayerKind::head, -1, depth, output});
  }
  if (!stage.head && (stage.mtp_layers > 0 || stage.passes_through())) list.push_back({LayerKind::departures});
  mark_frozen(stage, units, list);
  return list;
}

}  // namespace forge
