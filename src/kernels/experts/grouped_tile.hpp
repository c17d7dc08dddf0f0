#pragma once

#include <algorithm>
#include <cstdint>

#include "device/launch.hpp"
#include "kernels/experts/grouped_product.hpp"

namespace forge {

// Tiles of the results of groups' rows, 128 x 128, of which each block of a launch finds one. CUDA.

constexpr int group_tile = 128;

FORGE_HD constexpr int pieces_of(std::int64_t extent, int piece) {
  return static_cast<int>((extent + piece - 1) / piece);
}

// Σ ⌈r_g / 128⌉ of groups that have rows, at most, times the tiles of their columns.
inline std::int64_t most_group_tiles(const RowGroups& groups, std::int64_t rows, std::int64_t columns) {
  return (rows + (group_tile - 1) * std::min(groups.count, rows)) / group_tile * pieces_of(columns, group_tile);
}

// A tile of C among the rows of its group.
struct GroupTile {
  std::int64_t group = -1;  // −1: there is no such tile
  std::int64_t begin = 0;   // of the group's rows
  int rows = 0, row = 0, column = 0;
};

// The wanted tile, counted by group, then by columns, then by rows, so that blocks that run together read the same
// weights. Each warp finds it for itself: its lanes count the tiles of 32 groups at a time.
__device__ inline GroupTile find_tile(const RowGroups& groups, int wanted, int column_tiles) {
  const int l = static_cast<int>(threadIdx.x) % 32;
  GroupTile found;
  for (std::int64_t first = 0; first < groups.count; first += 32) {
    const std::int64_t g = first + l;
    const bool there = g < groups.count;
    const std::int64_t begin = there ? groups.begin_of(g) : 0;
    const int rows = there ? static_cast<int>(groups.begin_of(g + 1) - begin) : 0;
    const int tiles = pieces_of(rows, group_tile) * column_tiles;
    int through = tiles;  // of the groups up to this one
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, through, static_cast<unsigned>(distance));
      through += l >= distance ? before : 0;
    }
    const unsigned behind = __ballot_sync(0xffffffffu, through > wanted);
    const int owner = behind != 0 ? __ffs(static_cast<int>(behind)) - 1 : 31;
    const int inside = wanted - __shfl_sync(0xffffffffu, through - tiles, owner);
    if (behind == 0) {
      wanted -= __shfl_sync(0xffffffffu, through, 31);
      continue;
    }
    found.group = first + owner;
    found.begin = groups.begin_of(found.group);
    found.rows = static_cast<int>(groups.begin_of(found.group + 1) - found.begin);
    const int row_tiles = pieces_of(found.rows, group_tile);
    found.row = inside % row_tiles * group_tile;
    found.column = inside / row_tiles * group_tile;
    break;
  }
  return found;
}

}  // namespace forge
