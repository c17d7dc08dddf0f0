#include "layout/chunk_units.hpp"

#include <algorithm>

namespace forge {

std::size_t find_unit(const std::vector<LocalUnit>& units, UnitKind kind, std::int64_t layer) {
  for (std::size_t u = 0; u < units.size(); ++u)
    if (units[u].kind == kind && units[u].layer == layer) return u;
  return ChunkUnits::none;
}

ChunkUnits chunk_units(const std::vector<LocalUnit>& units, bool tied_embeddings, const StageContent& chunk) {
  ChunkUnits u;
  auto used = [&](UnitKind kind, std::int64_t layer = -1) {
    const std::size_t unit = find_unit(units, kind, layer);
    if (unit != ChunkUnits::none) u.forward.push_back(unit);
    return unit;
  };
  if (chunk.embedding) {
    u.table = used(UnitKind::token_table);
    u.positions = used(UnitKind::position_table);
  }
  auto use_layer = [&](int l) {
    u.blocks.push_back(used(UnitKind::block, chunk.layer(l)));
    u.experts.push_back(used(UnitKind::experts, chunk.layer(l)));
  };
  for (int l = 0; l < chunk.layers; ++l) use_layer(l);
  if (chunk.head) u.output = used(tied_embeddings ? UnitKind::token_table : UnitKind::output);
  if (chunk.final_norm()) u.norm = used(UnitKind::final_norm);
  for (int l = chunk.layers; l < chunk.layers + chunk.mtp_layers; ++l) {
    u.shared_table = used(UnitKind::token_table);
    use_layer(l);
    if (chunk.head) u.forward.push_back(u.output);
  }
  const auto layers = static_cast<std::size_t>(chunk.layers);
  for (std::size_t l = u.blocks.size(); l-- > 0;) {
    if (l + 1 == layers && chunk.final_norm()) u.backward.push_back(u.norm);
    u.backward.push_back(u.blocks[l]);
    if (u.experts[l] != ChunkUnits::none) u.backward.push_back(u.experts[l]);
  }
  if (layers == 0 && chunk.final_norm()) u.backward.push_back(u.norm);
  return u;
}

std::vector<int> uses_of_units(const std::vector<LocalUnit>& units, bool tied_embeddings,
                               const std::vector<StageContent>& chunks, int microbatches) {
  auto passes = [&](auto holds) {
    return static_cast<int>(std::count_if(chunks.begin(), chunks.end(), holds)) * microbatches;
  };
  const int embedding = passes([](const StageContent& c) { return c.embedding; });
  const int head = passes([](const StageContent& c) { return c.head; });
  const int mtp = passes([](const StageContent& c) { return c.mtp_layers > 0; });
  std::vector<int> uses;
  for (const LocalUnit& unit : units)
    uses.push_back(unit.kind == UnitKind::token_table ? embedding + (tied_embeddings ? head : 0) + mtp : microbatches);
  return uses;
}

int GatherPool::find(std::size_t unit) const {
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (places_[i].unit == unit) return static_cast<int>(i);
  return -1;
}

int GatherPool::take(std::size_t unit) {
  int oldest = -1;
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (places_[i].users == 0 && (oldest < 0 || places_[i].last < places_[static_cast<std::size_t>(oldest)].last))
      oldest = static_cast<int>(i);
  if (oldest >= 0) places_[static_cast<std::size_t>(oldest)] = {unit, 0, ++clock_};
  return oldest;
}

void GatherPool::use(std::size_t unit) {
  Place& place = places_[static_cast<std::size_t>(find(unit))];
  ++place.users;
  place.last = ++clock_;
}

void GatherPool::release(std::size_t unit) {
  const int place = find(unit);
  if (place >= 0) --places_[static_cast<std::size_t>(place)].users;
}

void GatherPool::forget() {
  for (Place& place : places_) place.unit = ChunkUnits::none;
}

}  // namespace forge
