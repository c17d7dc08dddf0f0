#include "plan/rank_share.hpp"

#include "config/optimizer_table.hpp"
#include "core/to_size.hpp"

#include <algorithm>
#include <set>

namespace forge {

namespace {

// A rank's place among those that share tensors with it.
LocalLayout local_layout(const ModelShare& model, int rank) {
  const MeshShape& mesh = model.mesh;
  const Grid grid = mesh.dense(), experts = mesh.expert();
  const auto coordinate = [&](Axis axis) { return grid.coordinate(rank, static_cast<int>(axis)); };
  const TrainDeck& train = model.deck.train;
  const int edp = experts.coordinate(rank, static_cast<int>(ExpertAxis::edp));
  const auto zero = [&](int shards, int shard, int replicas, int replica, int nodes) {
    return Zero{static_cast<int>(train.zero_stage),
                train.accumulate == Accumulation::sharded,
                train.gather == GatherPolicy::step,
                shards,
                shard,
                replicas,
                replica,
                model.deck.optimizer.gradients == StateType::bf16,
                nodes,
                train.overlap == Overlap::pairs ? 2 : 1};
  };
  return {mesh.tp,
          coordinate(Axis::tp),
          zero(mesh.dense_shards(), grid.index_in_group(rank, shard_axes), mesh.dp_replicate,
               coordinate(Axis::dp_replicate), mesh.shard_nodes),
          mesh.ep,
          experts.coordinate(rank, static_cast<int>(ExpertAxis::ep)),
          mesh.etp,
          experts.coordinate(rank, static_cast<int>(ExpertAxis::etp)),
          zero(mesh.expert_shards(), edp % mesh.expert_shards(), mesh.expert_replicas(), edp / mesh.expert_shards(),
               mesh.expert_shard_nodes)};
}

}  // namespace

RankShare rank_share(const ModelShare& model, int rank, bool matrices) {
  const Grid grid = model.mesh.dense();
  auto coordinate = [&](Axis axis) { return grid.coordinate(rank, static_cast<int>(axis)); };
  RankShare share;
  share.pp_rank = coordinate(Axis::pp);
  share.tp_rank = coordinate(Axis::tp);
  share.cp_rank = coordinate(Axis::cp);
  share.tp = model.mesh.tp;
  share.data_rank = grid.index_in_group(rank, data_axes);
  int chunks = 0;
  for (const StagePlacement& place : model.places) chunks = std::max(chunks, place.chunk + 1);
  share.chunks.resize(to_size(chunks));
  for (std::size_t stage = 0; stage < model.places.size(); ++stage)
    if (model.places[stage].rank == share.pp_rank)
      share.chunks[to_size(model.places[stage].chunk)] = model.stages[stage];
  const LocalLayout layout = local_layout(model, rank);
  share.units = local_units(model.spec, model.units, share.chunks, layout);
  for (const StageContent& chunk : share.chunks)
    share.layers.push_back(
        stage_layers(chunk, share.units, model.spec.options.tied_embeddings, model.deck.train.recompute_full_layers));
  const std::vector<int> tables = token_table_stages(model);
  if (std::find(tables.begin(), tables.end(), share.pp_rank) != tables.end())
    share.table_stages = static_cast<int>(tables.size());
  for (LocalUnit& unit : share.units)
    unit.tied_copy = unit.kind == UnitKind::token_table && share.pp_rank != model.places.front().rank;
  for (LocalUnit& unit : share.units)
    for (const Parameter& parameter : unit.parameters)
      unit.rules.push_back(unit.frozen ? UpdateRule{} : update_rule(model.deck.optimizer, unit.kind, parameter));
  if (matrices && row_of(model.deck.optimizer.name).whole_matrices())
    share.matrices = whole_matrices(share.units, layout, model.deck.optimizer);
  if (matrices && row_of(model.deck.optimizer.name).factored()) share.factored = factored_moments(share.units, layout);
  if (rounding_options(model.deck).on) {
    BufferContext c = buffer_context(model.deck, local_spec(model.spec, model.mesh.tp, model.mesh.etp));
    resolve_coded(c.rounding, model.deck, model.mesh);
    share.coded = coded_units(c, share.units, layout.tp_rank, layout.etp_rank);
  }
  share.clips_heads = model.deck.optimizer.qk_clip > 0;
  share.reports_norms = model.deck.output.norms_every_steps > 0;
  return share;
}

KeptShare RankShare::kept(const ModelSpec& spec) const {
  KeptShare kept;
  for (const std::vector<StageLayer>& chunk : layers)
    for (const StageLayer& layer : chunk) {
      if (layer.trains_only()) continue;
      if (layer.kind == LayerKind::block) kept.add_block(spec, layer.number);
      kept.head = kept.head || layer.kind == LayerKind::head;
    }
  return kept;
}

std::vector<int> token_table_stages(const ModelShare& model) {
  std::set<int> ranks;
  for (std::size_t stage = 0; stage < model.stages.size(); ++stage)
    if (holds_token_table(model.spec, model.stages[stage])) ranks.insert(model.places[stage].rank);
  return {ranks.begin(), ranks.end()};
}

}  // namespace forge
