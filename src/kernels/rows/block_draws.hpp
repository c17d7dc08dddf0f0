#pragma once

#include "core/array.hpp"
#include "device/parallel.hpp"
#include "kernels/rows/rounding.hpp"

namespace forge {

// A run is rounded in blocks of so many elements, each by a team.
inline constexpr std::int64_t rounding_block = 4096;

// The draws of a block of a run, as rows beside the elements: `count` rows in memory that the team shares. Include it
// where kernels may stand (forge_device_sources).
template <int count>
class BlockDraws {
 public:
  // Row r: draw `which` of elements begin … begin + n − 1 of the run. A barrier.
  FORGE_INLINE void fill(Team team, int r, const Rounding& rounding, int which, std::int64_t begin, std::int64_t n) {
    const ElementPlace& place = rounding.place;
    NeighbourDraws* const to = memory_.data() + r * groups_of_block;
    const std::int64_t before = place.element(begin) % draws_at_once;  // elements of the first eight ahead of the block
    const bool together = place.gap == 0 || (place.first | place.width | place.gap) % draws_at_once == 0;
    rows_[r] = to->numbers + (together ? before : 0);
    if (together)
      team.each((before + n + draws_at_once - 1) / draws_at_once, [=](std::int64_t g) {
        to[g] = rounding.neighbours(place.element(begin - before + g * draws_at_once), which);
      });
    else
      team.each(n, [=](std::int64_t j) { to->numbers[j] = rounding(begin + j, which); });
  }
  FORGE_INLINE const std::uint16_t* row(int r) const { return rows_[r]; }

 private:
  static constexpr int groups_of_block = rounding_block / draws_at_once + 1;

  TeamArray<NeighbourDraws, count * groups_of_block> memory_;
  Array<const std::uint16_t*, count> rows_;
};

}  // namespace forge
