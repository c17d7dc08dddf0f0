#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "layout/stage.hpp"
#include "layout/unit_buffers.hpp"

namespace forge {

// The places of units' gathered parameters: a buffer of the unit's own (−1), or one of a few of its class, of which the
// free one with the oldest use is taken.
class GatherPool {
 public:
  // `whole`: units with a buffer of their own stand there from the start, as ZeRO 1 and 2 gather behind the update.
  // `track`: of passes that run at once, whose buffers it has.
  GatherPool(const std::vector<LocalUnit>& units, bool whole, int track) : units_(units), states_(units.size()) {
    for (std::size_t k = 0; k < pools_.size(); ++k) {
      const int buffers = parameter_pool(units, static_cast<PoolClass>(k)).buffers / tracks_of(units);
      pools_[k].resize(to_size(buffers));
      first_[k] = track * buffers;
    }
    for (std::size_t u = 0; u < units.size(); ++u)
      states_[u].there = units[u].zero.keeps_whole() && (whole || units[u].zero.stage < 3);
  }

  // Where to gather a unit; nothing: it is there or on its way, or all buffers are in use.
  std::optional<int> take(std::size_t u) {
    UnitState& unit = states_[u];
    if (unit.there) return {};
    if (!units_[u].zero.keeps_whole()) {
      Buffer* oldest = nullptr;
      for (Buffer& buffer : pool(u))
        if (!buffer.used && (!oldest || buffer.last < oldest->last)) oldest = &buffer;
      if (!oldest) return {};
      if (oldest->unit != no_unit) states_[oldest->unit].there = false;
      *oldest = {u, false, ++clock_};
      unit.buffer = first(u) + static_cast<int>(oldest - pool(u).data());
    }
    unit.there = true;
    unit.waited = false;
    return unit.buffer;
  }
  // The buffer of a unit that was taken.
  int buffer_of(std::size_t u) const { return states_[u].buffer; }
  // Keeps a unit where it is until its release; returns whether the first reader must wait for it.
  bool hold(std::size_t u) {
    UnitState& unit = states_[u];
    require(unit.there, "a layer uses more units at a time than the parameter pool has places");
    if (unit.buffer >= 0) pool(u)[to_size(unit.buffer - first(u))] = {u, true, ++clock_};
    return !std::exchange(unit.waited, true);
  }
  void release(std::size_t u) {
    pool(u)[to_size(states_[u].buffer - first(u))].used = false;
    states_[u].waited = false;
  }

 private:
  struct Buffer {
    std::size_t unit = no_unit;
    bool used = false;
    std::int64_t last = 0;
  };
  struct UnitState {
    bool there = false, waited = false;
    int buffer = -1;
  };
  std::vector<Buffer>& pool(std::size_t u) { return pools_[to_size(pool_of(units_[u]))]; }
  int first(std::size_t u) const { return first_[to_size(pool_of(units_[u]))]; }

  const std::vector<LocalUnit>& units_;
  std::vector<UnitState> states_;
  std::array<std::vector<Buffer>, pool_classes> pools_;
  std::array<int, pool_classes> first_{};
  std::int64_t clock_ = 0;
};

}  // namespace forge
