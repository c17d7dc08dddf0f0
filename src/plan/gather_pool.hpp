#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/to_size.hpp"
#include "layout/stage.hpp"

namespace forge {

// Which unit's gathered parameters stand in which of a few places: the free place that was used longest ago is taken.
class GatherPool {
 public:
  explicit GatherPool(int places = 0) : places_(to_size(places)) {}

  // Place of a unit, −1: it must be gathered first.
  int find(std::size_t unit) const {
    const auto at = std::find_if(places_.begin(), places_.end(), [&](const PoolEntry& p) { return p.unit == unit; });
    return at == places_.end() ? -1 : static_cast<int>(at - places_.begin());
  }
  // Gives a free place to the unit, −1: all are in use.
  int take(std::size_t unit) {
    auto oldest = places_.end();
    for (auto p = places_.begin(); p != places_.end(); ++p)
      if (!p->used && (oldest == places_.end() || p->last < oldest->last)) oldest = p;
    if (oldest == places_.end()) return -1;
    *oldest = {unit, false, ++clock_};
    return static_cast<int>(oldest - places_.begin());
  }
  void set_used(std::size_t unit, bool used) {
    PoolEntry& place = places_[to_size(find(unit))];
    place.used = used;
    if (used) place.last = ++clock_;
  }

 private:
  struct PoolEntry {
    std::size_t unit = no_unit;
    bool used = false;
    std::int64_t last = 0;
  };
  std::vector<PoolEntry> places_;
  std::int64_t clock_ = 0;
};

}  // namespace forge
