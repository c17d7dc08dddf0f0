#pragma once

#include <cstdint>

#include "kernels/attention/attention_mma_tiles.hpp"

// Which tiles a block of the tensor-core kernels visits, which of their pairs count, and which dropout keeps.

namespace forge::attention_mma {

// Positions and documents of rows that follow each other. Documents may be null: all rows are of one. Where the mask is
// in order and of one document both are null, and row i has position first + i.
struct Places {
  const std::int32_t* positions;
  const std::int32_t* documents;
  int count, first;

  // The places of the tile that begins at row `row`, at most `rows` of them.
  __device__ Places tile(int row, int rows) const {
    return {positions ? positions + row : nullptr, documents ? documents + row : nullptr, min(count - row, rows),
            first + row};
  }
  __device__ bool known() const { return positions == nullptr; }
  __device__ std::int32_t position(int i) const { return known() ? first + i : positions[i]; }
  __device__ std::int32_t document(int i) const { return documents ? documents[i] : 0; }
};

// Rows [row, row + count) of all, which are those from `first` on of a sequence.
__device__ inline Places places(const View<const std::int32_t, 1>& positions,
                                const View<const std::int32_t, 1>& documents, bool in_order, std::int64_t row,
                                std::int64_t count, int first) {
  const bool known = in_order && documents.empty();
  return {known ? nullptr : positions.data + row, documents.empty() ? nullptr : documents.data + row,
          static_cast<int>(count), first};
}
__device__ inline Places query_places(const AttentionMask& m, std::int64_t row, std::int64_t count, int first) {
  return places(m.position_q, m.document_q, m.in_order, row, count, first);
}
__device__ inline Places key_places(const AttentionMask& m, std::int64_t row, std::int64_t count, int first) {
  return places(m.position_k, m.document_k, m.in_order, row, count, first);
}

// A span that has row i, too.
__device__ inline void extend(AttentionSpan& span, const Places& rows, int i) {
  const std::int32_t position = rows.positions[i], document = rows.document(i);
  span.first_position = min(span.first_position, position);
  span.last_position = max(span.last_position, position);
  span.first_document = min(span.first_document, document);
  span.last_document = max(span.last_document, document);
}

// The span of rows that are known, of one at least: without reading anything.
__device__ inline AttentionSpan known_span(const Places& rows) {
  return {rows.first, rows.first + rows.count - 1, 0, 0};
}

// The span of all rows, in every lane of a warp.
__device__ inline AttentionSpan warp_span(const Places& rows) {
  if (rows.known()) return known_span(rows);
  AttentionSpan span;
#pragma unroll 4
  for (int i = lane(); i < rows.count; i += 32) extend(span, rows, i);
  if (rows.documents == nullptr) span.first_document = span.last_document = 0;
  for (int offset = 16; offset > 0; offset /= 2) {
    span.first_position = min(span.first_position, __shfl_xor_sync(0xffffffffu, span.first_position, offset));
    span.last_position = max(span.last_position, __shfl_xor_sync(0xffffffffu, span.last_position, offset));
    if (rows.documents == nullptr) continue;
    span.first_document = min(span.first_document, __shfl_xor_sync(0xffffffffu, span.first_document, offset));
    span.last_document = max(span.last_document, __shfl_xor_sync(0xffffffffu, span.last_document, offset));
  }
  return span;
}

// A tile that a block visits: its first row, and whether every pair of it counts; in one register.
struct Visit {
  int code;  // −1 behind the last

  __device__ bool valid() const { return code >= 0; }
  __device__ int first() const { return code >> 1; }
  __device__ bool whole() const { return (code & 1) != 0; }
};

// A list of tiles in shared memory, where it takes no registers from one tile to the next: the bits of block_threads
// tiles; the rows of the block itself, which the tiles stand against, and all rows of the other side, with the two
// tensors whose tiles are loaded.
struct ListMemory {
  std::uint32_t visible[warps], whole[warps];
  unsigned char seen[block_threads];
  Places own, others;
  HeadRows tensors[2];
  AttentionSpan own_span;
};

// The tiles of the other side that a block has to visit, in order: all but those that attention_visibility() rules out.
// The spans of as many tiles as the block has threads are found at once, and the bits of 32 tiles that nobody sees are
// passed over in one step. Every thread of the block makes the same calls.
template <int tile_rows, bool tiles_are_keys>
class TileList {
 public:
  __device__ TileList(const Places& own, const Places& others, const HeadRows& a, const HeadRows& b,
                      std::int64_t window, ListMemory* memory)
      : window_(window), rows_(others.count), memory_(memory) {
    const AttentionSpan span = warp_span(own);
    if (threadIdx.x == 0) {
      memory->own = own;
      memory->others = others;
      memory->tensors[0] = a;
      memory->tensors[1] = b;
      memory->own_span = span;
    }
    __syncthreads();
    refill();
  }

  __device__ const Places& own() const { return memory_->own; }
  // The other side's rows of tensor i from row `first` on.
  __device__ HeadRows rows(int i, int first) const { return memory_->tensors[i].from(first); }
  // The places of a tile of the other side, from its row `first` on.
  __device__ Places tile(int first, int rows) const { return memory_->others.tile(first, rows); }

  __device__ Visit next() {
    while (visible_ == 0) {
      if (++word_ == warps) {
        base_ += block_threads;
        if (base_ * tile_rows >= rows_) {
          word_ = warps - 1, base_ -= block_threads;  // stays behind the last
          return {-1};
        }
        refill();
      }
      visible_ = memory_->visible[word_];
    }
    const int bit = __ffs(static_cast<int>(visible_)) - 1;
    visible_ &= visible_ - 1;
    return {2 * (base_ + 32 * word_ + bit) * tile_rows + static_cast<int>(memory_->whole[word_] >> bit & 1u)};
  }

  // The step from one tile to the next: that one's copy, load(its first row, stage), begins when this tile is there for
  // all and nobody reads the other stage any more.
  template <class Load>
  __device__ Visit step(int stage, const Load& load) {
    const Visit coming = next();
    copy_async_wait<0>();
    __syncthreads();
    if (coming.valid()) load(coming.first(), stage ^ 1);
    copy_async_commit();
    return coming;
  }

 private:
  __device__ Visibility seen(const AttentionSpan& own, const AttentionSpan& tile) const {
    return tiles_are_keys ? attention_visibility(own, tile, window_) : attention_visibility(tile, own, window_);
  }

  // The visibility of this thread's tile, from tile base_ on. The warps take turns with tiles that have to be read, and
  // a warp's lanes have the rows of one, so that they read neighbouring addresses.
  __device__ Visibility find() {
    const AttentionSpan own = memory_->own_span;
    const int thread = static_cast<int>(threadIdx.x);
    const bool exists = (base_ + thread) * tile_rows < rows_;
    if (memory_->others.known()) {
      __syncthreads();  // all have passed on the bits before
      return exists ? seen(own, known_span(tile((base_ + thread) * tile_rows, tile_rows))) : Visibility::none;
    }
    for (int t = warp(); t < block_threads && (base_ + t) * tile_rows < rows_; t += warps) {
      const Visibility found = seen(own, warp_span(tile((base_ + t) * tile_rows, tile_rows)));
      if (lane() == 0) memory_->seen[t] = static_cast<unsigned char>(found);
    }
    __syncthreads();
    return exists ? static_cast<Visibility>(memory_->seen[thread]) : Visibility::none;
  }

  __device__ void refill() {
    const Visibility found = find();
    const std::uint32_t visible = __ballot_sync(0xffffffffu, found != Visibility::none);
    const std::uint32_t whole = __ballot_sync(0xffffffffu, found == Visibility::all);
    if (lane() == 0) {
      memory_->visible[warp()] = visible;
      memory_->whole[warp()] = whole;
    }
    __syncthreads();
    word_ = 0;
    visible_ = memory_->visible[0];
  }

  std::int64_t window_;
  int rows_;
  ListMemory* memory_;
  std::uint32_t visible_ = 0;
  int base_ = 0, word_ = 0;
};

// Positions and documents of a lane's rows, from row `row` of the tile on.
template <int m>
struct OwnPlaces {
  std::int32_t position[m][2], document[m][2];

  __device__ OwnPlaces(const Places& tile, int row) {
#pragma unroll
    for (int i = 0; i < m; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = row + 16 * i + 8 * half + lane() / 4;
        position[i][half] = at < tile.count ? tile.position(at) : 0;
        document[i][half] = at < tile.count ? tile.document(at) : 0;
      }
  }
};

// The largest distance at which a query sees a key. Positions are not negative, so that one comparison of unsigned
// numbers finds keys behind the query and keys out of the window.
__device__ inline std::uint32_t farthest(std::int64_t window) {
  return window == 0 || window > INT32_MAX ? INT32_MAX : static_cast<std::uint32_t>(window - 1);
}

// Bits of those columns of a lane that are less than `column` behind its first; column 8 c + e has bit 2 c + e.
__device__ inline std::uint32_t bits_before(int column) {
  const int bits = column <= 0 ? 0 : column / 8 * 2 + min(column % 8, 2);
  return bits >= 32 ? ~0u : (1u << bits) - 1;
}

// The columns of a lane that the row at position `own` doesn't see: of rows that are known, which see an interval.
template <bool columns_are_keys>
__device__ std::uint32_t hidden_known(std::int32_t own, const Places& columns, std::uint32_t limit) {
  const int first = columns.first + 2 * (lane() % 4), farthest = static_cast<int>(limit);
  const int begin = columns_are_keys ? own - farthest : own;
  const int last = columns_are_keys ? own : farthest > INT32_MAX - own ? INT32_MAX : own + farthest;
  return ~bits_before(min(last, columns.first + columns.count - 1) - first + 1) | bits_before(begin - first);
}

// Likewise of other rows, two of a fragment.
template <bool columns_are_keys, int j>
__device__ void find_hidden(const std::int32_t (&position)[2], const std::int32_t (&document)[2], const Places& columns,
                            std::uint32_t limit, std::uint32_t (&hidden)[2]) {
#pragma unroll 4
  for (int bit = 0; bit < 2 * j; ++bit) {
    const int column = bit / 2 * 8 + 2 * (lane() % 4) + bit % 2;
    const bool inside = column < columns.count;
    const std::int32_t place = inside ? columns.positions[column] : 0;
    const std::int32_t of_document = inside ? columns.document(column) : 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto distance =
          static_cast<std::uint32_t>(columns_are_keys ? position[half] - place : place - position[half]);
      if (!inside || distance > limit || of_document != document[half]) hidden[half] |= 1u << bit;
    }
  }
}

// scores ← −Inf where the query doesn't see the key, and behind the columns' last. First as bits: scores are registers,
// beside which there are few for positions.
template <bool columns_are_keys, int m, int j>
__device__ void hide(const OwnPlaces<m>& rows, const Places& columns, std::uint32_t limit, float (&scores)[m][j][4]) {
  static_assert(2 * j <= 32);
#pragma unroll
  for (int i = 0; i < m; ++i) {
    std::uint32_t hidden[2] = {};
    if (columns.known()) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        hidden[half] = hidden_known<columns_are_keys>(rows.position[i][half], columns, limit);
    } else {
      find_hidden<columns_are_keys, j>(rows.position[i], rows.document[i], columns, limit, hidden);
    }
#pragma unroll
    for (int c = 0; c < j; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (hidden[e / 2] >> (2 * c + e % 2) & 1u) scores[i][c][e] = -infinity<float>();
  }
}

// The factor of a probability with dropout: 1 / (1 − rate) or 0.
struct Draws {
  double rate;
  float kept;  // 1 / (1 − rate)
  std::uint64_t key;
  const std::int64_t* samples;  // of the tile of queries
  int queries;                  // as many rows has it

  __device__ Draws(const AttentionShape& shape, float factor, int head, std::int64_t row_q, int count)
      : rate(shape.dropout),
        kept(factor),
        key(attention_dropout_key(shape.dropout_key, shape.first_head + head)),
        samples(shape.samples.data + row_q),
        queries(count) {}

  __device__ float draw(int query, std::int32_t position_q, std::int32_t position_k) const {
    if (query >= queries) return 0;
    return attention_kept(key, samples[query], position_q, position_k, rate) ? kept : 0;
  }
};

// keep(i, c, n, factor) for every score [i][c][n] of a lane; rows stand from row `row` of their tile on.
template <bool columns_are_keys, int m, int j, class F>
__device__ void each_draw(const Draws& draws, const OwnPlaces<m>& rows, int row, const Places& columns, const F& keep) {
#pragma unroll
  for (int c = 0; c < j; ++c)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = 8 * c + 2 * (lane() % 4) + e;
      const std::int32_t position = column < columns.count ? columns.position(column) : 0;
#pragma unroll
      for (int i = 0; i < m; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int own = row + 16 * i + 8 * half + lane() / 4;
          const std::int32_t place = rows.position[i][half];
          keep(i, c, 2 * half + e,
               columns_are_keys ? draws.draw(own, place, position) : draws.draw(column, position, place));
        }
    }
}

}  // namespace forge::attention_mma
