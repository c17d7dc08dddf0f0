#pragma once

#include "kernels/attention/attention_mma_launch.hpp"
#include "kernels/attention/attention_mma_mask.hpp"

// Common parts of the backward's kernels, whichever instructions they multiply by.

namespace forge::attention_mma {

// The lse of a row as the kernels take it: log2 of the scores' divisor; rows that saw nothing have p = 0.
__device__ inline float lse_to_subtract(float lse) {
  return lse == -infinity<float>() ? infinity<float>() : lse * log2_e;
}

// The queries that a block of keys goes through: tile by tile, all heads of a tile one after the other. They begin at a
// multiple of their number.
template <int tile_rows>
struct QueryWalk {
  TileList<tile_rows, false> tiles;
  int heads, head;
  Visit tile;

  __device__ QueryWalk(const TileList<tile_rows, false>& list, int first, int count)
      : tiles(list), heads(count), head(first), tile(tiles.next()) {}
  __device__ void next() {
    if (++head % heads != 0) return;
    head -= heads;
    tile = tiles.next();
  }
};

// backward() by warpgroups (attention_specialized.hpp), where specialized_takes().
void specialized_backward(Stream& stream, const Problem<bf16>& p, const Gradients<bf16>& g);

}  // namespace forge::attention_mma
