#include "schedule/rank_share.hpp"

#include <algorithm>
#include <set>

namespace forge {

RankShare rank_share(const ModelShare& model, int rank) {
  const Grid grid = model.mesh.dense();
  auto coordinate = [&](Axis axis) { return grid.coordinate(rank, static_cast<int>(axis)); };
  RankShare share;
  share.pp_rank = coordinate(Axis::pp);
  share.tp_rank = coordinate(Axis::tp);
  share.cp_rank = coordinate(Axis::cp);
  share.data_rank = grid.index_in_group(rank, data_axes);
  share.first_replica = coordinate(Axis::dp_replicate) == 0;
  const TrainDeck& train = model.deck.train;
  Zero zero{static_cast<int>(train.zero_stage), train.accumulate == Accumulation::sharded,
            train.gather == GatherPolicy::step, model.mesh.dense_shards(), grid.index_in_group(rank, shard_axes)};
  share.zero[static_cast<std::size_t>(UnitClass::dense)] = zero;
  share.replica[static_cast<std::size_t>(UnitClass::dense)] = coordinate(Axis::dp_replicate);
  share.replicas[static_cast<std::size_t>(UnitClass::dense)] = model.mesh.dp_replicate;
  const Grid experts = model.mesh.expert();
  const int edp = experts.coordinate(rank, static_cast<int>(ExpertAxis::edp));
  zero.shards = model.mesh.expert_shards();
  zero.shard = edp % zero.shards;
  share.zero[static_cast<std::size_t>(UnitClass::experts)] = zero;
  share.replica[static_cast<std::size_t>(UnitClass::experts)] = edp / zero.shards;
  share.replicas[static_cast<std::size_t>(UnitClass::experts)] = model.mesh.expert_replicas();
  const bool first_expert_replica = edp < zero.shards;
  int chunks = 0;
  for (const Place& place : model.places) chunks = std::max(chunks, place.chunk + 1);
  share.chunks.resize(static_cast<std::size_t>(chunks));
  for (std::size_t stage = 0; stage < model.places.size(); ++stage)
    if (model.places[stage].rank == share.pp_rank)
      share.chunks[static_cast<std::size_t>(model.places[stage].chunk)] = model.stages[stage];
  const LocalLayout layout{model.mesh.tp,
                           share.tp_rank,
                           model.mesh.dense_shards(),
                           model.mesh.ep,
                           experts.coordinate(rank, static_cast<int>(ExpertAxis::ep)),
                           model.mesh.etp,
                           experts.coordinate(rank, static_cast<int>(ExpertAxis::etp)),
                           model.mesh.expert_shards()};
  share.units = local_units(model.spec, model.units, share.chunks, layout);
  for (const StageContent& chunk : share.chunks)
    share.layers.push_back(stage_layers(chunk, share.units, model.spec.options.tied_embeddings));
  const std::vector<int> tables = token_table_stages(model);
  if (std::find(tables.begin(), tables.end(), share.pp_rank) != tables.end())
    share.table_stages = static_cast<int>(tables.size());
  for (const LocalUnit& unit : share.units) {
    const bool tied_copy = unit.kind == UnitKind::token_table && share.pp_rank != model.places.front().rank;
    const bool first = class_of(unit) == UnitClass::experts ? first_expert_replica : share.first_replica;
    share.tied_copy.push_back(tied_copy);
    share.counts.push_back(first && !tied_copy);
  }
  return share;
}

std::vector<int> token_table_stages(const ModelShare& model) {
  std::set<int> ranks;
  for (std::size_t stage = 0; stage < model.stages.size(); ++stage)
    if (holds_token_table(model.spec, model.stages[stage])) ranks.insert(model.places[stage].rank);
  return {ranks.begin(), ranks.end()};
}

}  // namespace forge
