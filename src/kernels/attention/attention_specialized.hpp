#pragma once

#include "device/mbarrier.hpp"
#include "device/warpgroup.hpp"
#include "kernels/attention/attention_mma_backward.hpp"
#include "kernels/attention/attention_mma_forward.hpp"
#include "kernels/attention/attention_specialized_calls.hpp"

// Common parts of kernels that multiply by warpgroups. Their warps have different tasks (warp specialization: Shah et
// al. 2024, FlashAttention-3, section 3.1): some copy tiles to shared memory, two warpgroups multiply them, each at its
// own pace: the tensor cores have one's products while the other weighs scores. Nobody meets at barriers of the
// block: copying warps wait until both groups have done with a tile's predecessor, and these wait until a tile is
// there. Four warps have 64 rows of a product, of which a warp has 16, and its lanes their columns as in
// attention_mma_tiles.hpp.

namespace forge::attention_mma {

constexpr int consumer_groups = 2, consumer_warps = 4 * consumer_groups, producer_warps = 4;
constexpr int specialized_warps = consumer_warps + producer_warps;
constexpr int specialized_threads = 32 * specialized_warps;
constexpr int producer_registers = 24, consumer_registers = 240;
static_assert(producer_warps * producer_registers + consumer_warps * consumer_registers <=
              specialized_warps * (65536 / specialized_threads / 8 * 8));

constexpr int group_rows = 64;

// A tile in panels of 64 columns: device/warpgroup.hpp says where its chunks stand.
template <int rows_, int columns_>
struct Panels {
  static_assert(rows_ % 8 == 0 && columns_ % 64 == 0);
  static constexpr int rows = rows_, columns = columns_, chunks = columns / 8, values_all = rows * columns;
  static constexpr int row_values = 64, next_64_columns = 64 * rows, panel_bytes = 2 * next_64_columns;
  bf16* values;

  __device__ bf16* chunk(int row, int c) const {
    return values + c / 8 * next_64_columns + row * row_values + (c % 8 ^ (row & 7)) * 8;
  }
  __device__ const bf16* row(int r) const { return values + r * row_values; }
};

// The left factor of a product, from the registers of another one's result.
template <int j>
__device__ void pack_words(const float (&x)[j][4], std::uint32_t (&words)[j / 2][4]) {
#pragma unroll
  for (int c = 0; c < j; ++c) {
    words[c / 2][c % 2 * 2] = pack_bf16(x[c][0], x[c][1]);
    words[c / 2][c % 2 * 2 + 1] = pack_bf16(x[c][2], x[c][3]);
  }
}

// A block's dynamic shared memory. It begins at a multiple of panel_alignment where a kernel has no other, which these
// count on, as they have no registers to look for one: prepare_panels() traps elsewhere.
constexpr std::size_t panel_alignment = 1024;
__device__ inline bf16* aligned_panels() {
  return static_cast<bf16*>(__builtin_assume_aligned(dynamic_shared(), panel_alignment));
}
__device__ inline void prepare_panels() {
  require_shared_alignment(dynamic_shared(), static_cast<int>(panel_alignment));
}

// Which rows and heads a block has: of queries `head`, of keys `kv`; `count` rows of a sequence from `first` on; and
// the first rows of the tensors that it reads. In shared memory, where they take no registers of any task.
struct BlockRows {
  int head, kv, first, count, row_q, row_k;
};

// The rows of blocks of queries, the longest of causal masks first; and of blocks of keys.
__device__ inline BlockRows rows_of_queries(const AttentionSizes& n, int group, int rows) {
  const auto heads = static_cast<unsigned>(n.H), sequences = static_cast<unsigned>(n.B);
  const int head = static_cast<int>(blockIdx.x % heads), b = static_cast<int>(blockIdx.x / heads % sequences);
  const int first = static_cast<int>(tiles_of(n.Tq, rows) - 1 - blockIdx.x / heads / sequences) * rows;
  return {head,
          head / group,
          first,
          min(static_cast<int>(n.Tq) - first, rows),
          b * static_cast<int>(n.Tq) + first,
          b * static_cast<int>(n.Tk)};
}
__device__ inline BlockRows rows_of_keys(const AttentionSizes& n, int rows) {
  const auto heads = static_cast<unsigned>(n.K), sequences = static_cast<unsigned>(n.B);
  const int b = static_cast<int>(blockIdx.x / heads % sequences);
  const int first = static_cast<int>(blockIdx.x / heads / sequences) * rows;
  return {0,
          static_cast<int>(blockIdx.x % heads),
          first,
          min(static_cast<int>(n.Tk) - first, rows),
          b * static_cast<int>(n.Tq),
          b * static_cast<int>(n.Tk) + first};
}

// The tiles of the other side that a block visits: a bit each, and whether all of its pairs count.
constexpr int most_tile_words = 128;
struct TileBits {
  std::uint32_t visible[most_tile_words], whole[most_tile_words];
};

// Finds them, by all warps of the block; they are there behind its next barrier. A warp's lanes take 32 tiles that
// needn't be read, or the rows of one tile.
template <int tile_rows, bool tiles_are_keys>
__device__ void find_tiles(const Places& own, const Places& others, std::int64_t window, TileBits* bits) {
  static_assert(32 * tile_rows * most_tile_words >= specialized_rows);
  const AttentionSpan own_span = warp_span(own);
  const int tiles = (others.count + tile_rows - 1) / tile_rows, words = max((tiles + 31) / 32, 1);
  const auto seen = [&](const AttentionSpan& span) {
    return tiles_are_keys ? attention_visibility(own_span, span, window) : attention_visibility(span, own_span, window);
  };
  for (int word = warp(); word < words; word += specialized_warps) {
    Visibility found = Visibility::none;
    if (const int t = 32 * word + lane(); others.known() && t < tiles)
      found = seen(known_span(others.tile(t * tile_rows, tile_rows)));
    const std::uint32_t visible = __ballot_sync(0xffffffffu, found != Visibility::none);
    const std::uint32_t whole = __ballot_sync(0xffffffffu, found == Visibility::all);
    if (lane() == 0) bits->visible[word] = visible, bits->whole[word] = whole;
  }
  if (others.known()) return;
  __syncthreads();
  for (int t = warp(); t < tiles; t += specialized_warps) {
    const Visibility found = seen(warp_span(others.tile(t * tile_rows, tile_rows)));
    if (lane() != 0) continue;
    const std::uint32_t bit = 1u << t % 32;
    if (found != Visibility::none) atomicAdd(&bits->visible[t / 32], bit);
    if (found == Visibility::all) atomicAdd(&bits->whole[t / 32], bit);
  }
}

// A copying warp's way through them.
template <int tile_rows>
class TileWalk {
 public:
  __device__ TileWalk(const TileBits* bits, int rows)
      : bits_(bits), words_((rows + 32 * tile_rows - 1) / (32 * tile_rows)), visible_(bits->visible[0]) {}

  __device__ Visit next() {
    while (visible_ == 0) {
      if (word_ + 1 >= words_) return {-1};
      visible_ = bits_->visible[++word_];
    }
    const int bit = __ffs(static_cast<int>(visible_)) - 1;
    visible_ &= visible_ - 1;
    return {2 * (32 * word_ + bit) * tile_rows + static_cast<int>(bits_->whole[word_] >> bit & 1u)};
  }

 private:
  const TileBits* bits_;
  int words_, word_ = 0;
  std::uint32_t visible_;
};

// Places of tiles in shared memory that take turns: which tile is there, and the barriers at which they are filled and
// emptied.
template <int places_>
struct Ring {
  static constexpr int places = places_;
  Mbarrier full[places], empty[places];
  Visit visits[places];

  __device__ void init(int filling_warps) {
    for (int i = 0; i < places; ++i) {
      mbarrier_init(full + i, filling_warps);
      mbarrier_init(empty + i, consumer_warps);
    }
  }
};

// Where a warp stands in a ring: its place, and the parity of the phase in which that place is filled now; in one
// register.
template <int places>
struct Turn {
  int code = 0;  // 8 parity + place

  __device__ int place() const { return code & 7; }
  __device__ int parity() const { return code >> 3; }
  __device__ void next() { code = place() + 1 == places ? (code & 8) ^ 8 : code + 1; }
  __device__ Turn before() const { return {place() > 0 ? code - 1 : ((code & 8) ^ 8) + places - 1}; }
};

template <int places>
__device__ Visit wait_until_full(const Ring<places>& ring, const Turn<places>& turn) {
  mbarrier_wait(ring.full + turn.place(), turn.parity());
  return ring.visits[turn.place()];
}
// Called by the copying warps.
template <int places>
__device__ void wait_until_empty(const Ring<places>& ring, const Turn<places>& turn) {
  mbarrier_wait(ring.empty + turn.place(), turn.parity() ^ 1);
}
// Likewise, and the first of them writes the tile that they copy.
template <int places>
__device__ void wait_until_empty(Ring<places>& ring, const Turn<places>& turn, const Visit& visit, int part) {
  wait_until_empty(ring, turn);
  if (part == 0 && lane() == 0) ring.visits[turn.place()] = visit;
}

// Starts copying a part of a tile, one of `parts` alike: rows [0, count) of a head, from row `row` of a tensor on,
// whose heads and rows are multiples of 16 bytes; zeros behind them and behind their columns. A warp: eight lanes take
// 128 bytes of a row.
template <int parts, class T>
__device__ void load_by_warp(const View<const bf16, 3>& x, std::int64_t row, int head, int count, const T& to,
                             int part) {
  constexpr int rows = T::rows / parts;
  static_assert(rows % 8 == 0);
  int thread = lane(), step = static_cast<int>(8 * x.pitch);  // bytes of four rows
  compute_here(thread);                                       // each time: the copying warps have few registers
  compute_here(step);
  const int own = part * rows + thread / 8, chunk = thread % 8, columns = static_cast<int>(x.extent(2));
  const auto* source =
      reinterpret_cast<const unsigned char*>(x.data + (row + own) * x.pitch + head * columns + 8 * chunk);
  bf16* place = to.chunk(own, chunk);
  int left = count - own;
#pragma unroll(parts > 1 ? 2 : 1)
  for (int r = 0; r < rows; r += 4, left -= 4, source += step) {
#pragma unroll
    for (int c = 0; c < T::columns; c += 64)
      copy_async_16(place + c / 64 * T::next_64_columns, source + 2 * c, left > 0 && 8 * chunk + c < columns ? 16 : 0);
    // Four rows on; the chunk is the same xor 4.
    place = reinterpret_cast<bf16*>((reinterpret_cast<std::uintptr_t>(place) + 8 * T::row_values) ^ 64);
  }
}

// Waits for a copying warp's copies, and announces them.
__device__ inline void announce(Mbarrier* full) {
  copy_async_commit();
  copy_async_wait<0>();
  publish_to_warpgroups();
  mbarrier_arrive_as_warp(full);
}

// The work of a block of queries of one head before its tasks part. Control: its shared memory.
template <class S, class Control>
__device__ void prepare_queries(const Problem<bf16>& p, int group, Control* control) {
  prepare_panels();
  const BlockRows rows = rows_of_queries(p.n, group, S::rows);
  find_tiles<S::tile, true>(query_places(p.mask, rows.row_q, rows.count, rows.first),
                            key_places(p.mask, rows.row_k, p.n.Tk, 0), p.mask.window, &control->bits);
  __syncthreads();
  if (threadIdx.x == 0) {
    control->rows = rows;
    mbarrier_init(&control->own, producer_warps);
    control->keys.init(producer_warps / 2);
    control->values.init(producer_warps / 2);
  }
  __syncthreads();
}

// Copies the tiles of keys, or of values, that such a block visits. Two warps have one of these tensors, each a half of
// every tile: neither waits for the other tensor's places.
template <class S, int places, class Tiles>
__device__ void copy_tiles(const View<const bf16, 3>& x, const BlockRows& rows, int keys, const TileBits* bits,
                           Ring<places>& ring, const Tiles& tiles, int part) {
  TileWalk<S::tile> walk(bits, keys);
  Turn<places> turn;
  while (true) {
    const Visit at = walk.next();
    wait_until_empty(ring, turn, at, part);
    if (at.valid()) load_by_warp<2>(x, rows.row_k + at.first(), rows.kv, keys - at.first(), tiles(turn.place()), part);
    announce(ring.full + turn.place());
    if (!at.valid()) return;
    turn.next();
  }
}

// The copying warps of such a block, from task 0 on.
template <class S, class Memory>
__device__ void produce_keys(const Problem<bf16>& p, const Memory& memory, int task) {
  auto* control = memory.control();
  const int keys = static_cast<int>(p.n.Tk);
  if (task < 2)
    copy_tiles<S>(
        p.k, control->rows, keys, &control->bits, control->keys, [&](int place) { return memory.keys(place); }, task);
  else
    copy_tiles<S>(
        p.v, control->rows, keys, &control->bits, control->values, [&](int place) { return memory.values(place); },
        task - 2);
}

}  // namespace forge::attention_mma
