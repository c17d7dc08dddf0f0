#pragma once

#include <vector>

#include "layout/local_units.hpp"

namespace forge {

// The units of a pipeline chunk, by index in the rank's units, and the order in which its passes use them.
struct ChunkUnits {
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  std::size_t table = none, positions = none, output = none, norm = none;
  std::size_t shared_table = none;  // the token table, of multi-token prediction
  // By layer of the chunk, those of multi-token prediction behind the others; a layer without experts: none.
  std::vector<std::size_t> blocks, experts;
  std::vector<std::size_t> forward, backward;
};
ChunkUnits chunk_units(const std::vector<LocalUnit>& units, bool tied_embeddings, const StageContent& chunk);

// Index of the unit of a kind and layer; ChunkUnits::none where the rank has none.
std::size_t find_unit(const std::vector<LocalUnit>& units, UnitKind kind, std::int64_t layer = -1);

// How often a step adds to each unit's gradients: a microbatch's uses in the output matrix count as one, and so do
// those of the token table in a chunk's multi-token layers.
std::vector<int> uses_of_units(const std::vector<LocalUnit>& units, bool tied_embeddings,
                               const std::vector<StageContent>& chunks, int microbatches);

// Which unit's gathered parameters stand in which of a few places: the least recently used free place is taken. The
// executor gathers by it, and plan/traffic.hpp counts by it.
class GatherPool {
 public:
  explicit GatherPool(int places = 0) : places_(static_cast<std::size_t>(places)) {}

  // Place of a unit, −1: it must be gathered first.
  int find(std::size_t unit) const;
  // Gives a free place to the unit, −1: all are in use.
  int take(std::size_t unit);
  void use(std::size_t unit);
  void release(std::size_t unit);
  // Nothing stands anywhere any more.
  void forget();

 private:
  struct Place {
    std::size_t unit = ChunkUnits::none;
    int users = 0;
    std::int64_t last = 0;
  };
  std::vector<Place> places_;
  std::int64_t clock_ = 0;
};

}  // namespace forge
