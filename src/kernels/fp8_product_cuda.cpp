#include <type_traits>

#include "core/error.hpp"
#include "device/instructions.hpp"
#include "device/warpgroup.hpp"
#include "kernels/fp8_factor.hpp"
#include "kernels/fp8_product.hpp"
#include "kernels/grouped_tile.hpp"

namespace forge {

namespace {

// A block of eight warps has 128 rows and 128 columns of C, a warp 16 of the rows. Slots of both operands come into
// shared memory in turn, two ahead of the one that is multiplied. Lane 4 g + t holds of every 16 x 8 of a product the
// rows g and g + 8, columns 2 t and 2 t + 1: d[2 i + e] is row g + 8 i, column 2 t + e.
constexpr int warps = 8, block_threads = 32 * warps, tile = 16 * warps, stages = 3;
constexpr int slot_bytes = 128, tile_bytes = tile * slot_bytes, columns_each = tile / 8;
static_assert(slot_bytes == fp8_block && block_threads == 2 * tile && tile == group_tile);
constexpr unsigned warpgroup_alignment = 1024;
constexpr std::size_t shared_bytes = stages * (2 * tile_bytes + 2 * tile * sizeof(float));

// Chunk c of 16 bytes of row r stands at place c xor (r mod 8): the eight rows of one chunk, which ldmatrix reads at
// once, lie in different banks.
__device__ int place_of(int row, int chunk) {
  return row * slot_bytes + (chunk ^ (row & 7)) * 16;
}

// The lines of an operand that a tile has: [first, first + 128), as far as they go.
struct TileLines {
  std::int64_t first, end;
};

// Starts copying a slot of a tile's lines; zeros behind the last one.
__device__ void load_tile(const Fp8Codes& from, const TileLines& lines, std::int64_t slot, unsigned char* to) {
  const int thread = static_cast<int>(threadIdx.x), chunk = thread % 8;
  const std::uint8_t* codes = from.codes.data + slot * slot_bytes + chunk * 16;
#pragma unroll
  for (int row = 0; row < tile; row += block_threads / 8) {
    const std::int64_t line = lines.first + row + thread / 8;
    const bool inside = line < lines.end;
    copy_async_16(to + place_of(row + thread / 8, chunk), inside ? codes + line * from.codes.pitch : from.codes.data,
                  inside ? 16 : 0);
  }
}

// What a thread finds out of one line of A or of B: its scales, slot by slot.
struct LineScales {
  const float* amax = nullptr;  // nullptr: no such line
  std::int64_t stride = 0;
  Fp8Format format = Fp8Format::e4m3;
  bool exact = false;

  __device__ LineScales(const Fp8Codes& x, const TileLines& lines, int row)
      : stride(x.depth_stride), format(x.format), exact(x.exact) {
    if (lines.first + row < lines.end) amax = x.amax_of(lines.first + row);
  }
  __device__ float factor(std::int64_t group) const {
    return amax ? fp8_factor(amax[group * stride], format, exact) : 0;
  }
};

template <Fp8Format of_a>
__device__ void multiply_add_codes(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (of_a == Fp8Format::e4m3)
    multiply_add_e4m3(d, a, b);
  else
    multiply_add_e5m2_e4m3(d, a, b);
}

// sum(16, 128) = rows of this warp of a, times bᵀ, over a slot.
template <Fp8Format of_a>
__device__ void multiply_slot(const unsigned char* a, const unsigned char* b, float (&sum)[columns_each][4]) {
  const int l = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int of_first = place_of(16 * warp + l % 16, l / 16), of_second = place_of(l / 16 * 8 + l % 8, l / 8 % 2);
#pragma unroll
  for (int c = 0; c < columns_each; ++c)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[c][e] = 0;
#pragma unroll
  for (int k = 0; k < slot_bytes / 32; ++k) {
    std::uint32_t x[4];
    load_matrices(x, a + (of_first ^ 32 * k));
#pragma unroll
    for (int c = 0; c < columns_each; c += 2) {
      std::uint32_t y[4];
      load_matrices(y, b + (of_second ^ 32 * k) + 8 * c * slot_bytes);
      const std::uint32_t low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
      multiply_add_codes<of_a>(sum[c], x, low);
      multiply_add_codes<of_a>(sum[c + 1], x, high);
    }
  }
}

// total += sum · 1 / scale of its row · 1 / scale of its column. One after the other: the product of both may be beyond
// fp32 where the result is not.
__device__ void add_slot(const float (&sum)[columns_each][4], const float* of_rows, const float* of_columns,
                         float (&total)[columns_each][4]) {
  const int l = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 + l / 4;
  const float rows[2] = {of_rows[row], of_rows[row + 8]};
#pragma unroll
  for (int c = 0; c < columns_each; ++c) {
    const float columns[2] = {of_columns[8 * c + l % 4 * 2], of_columns[8 * c + l % 4 * 2 + 1]};
#pragma unroll
    for (int e = 0; e < 4; ++e) total[c][e] += sum[c][e] * rows[e / 2] * columns[e % 2];
  }
}

template <class TC>
__device__ void store(const float (&total)[columns_each][4], const TileLines& rows, std::int64_t first_column,
                      bool adds, const View<TC, 2>& c) {
  const int l = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t row = rows.first + 16 * warp + 8 * i + l / 4;
    if (row >= rows.end) continue;
#pragma unroll
    for (int j = 0; j < columns_each; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const std::int64_t column = first_column + 8 * j + l % 4 * 2 + e;
        if (column >= c.columns()) continue;
        TC& to = c.row(row)[column];
        to = TC(adds ? static_cast<float>(to) + total[j][2 * i + e] : total[j][2 * i + e]);
      }
  }
}

// The same by the whole warpgroup, where the code that is compiled now may: `warpgroups` asks for it. Threads must have
// published what they copied.
template <Fp8Format of_a, bool warpgroups>
__device__ void multiply_tiles(const unsigned char* a, const unsigned char* b, float (&sum)[columns_each][4]) {
  if constexpr (warpgroups && compiles_warpgroups)
    multiply_warpgroup<of_a>(sum, a + static_cast<int>(threadIdx.x) / 128 * 64 * slot_bytes, b);
  else
    multiply_slot<of_a>(a, b, sum);
}

template <bool warpgroups>
__device__ unsigned char* tile_memory() {
  unsigned char* memory = dynamic_shared();
  if constexpr (!warpgroups) return memory;
  const auto beyond = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(memory) % warpgroup_alignment);
  return memory + (beyond > 0 ? warpgroup_alignment - beyond : 0);
}

// total = the block's tile, of lines of A and lines of B.
template <Fp8Format of_a, bool warpgroups>
__device__ void multiply(const Fp8Codes& a, const TileLines& rows, const Fp8Codes& b, const TileLines& columns,
                         float (&total)[columns_each][4]) {
  unsigned char* tiles = tile_memory<warpgroups>();
  auto* factors = reinterpret_cast<float*>(tiles + stages * 2 * tile_bytes);  // (stages, 2, 128)
  const int thread = static_cast<int>(threadIdx.x);
  const bool of_rows = thread < tile;
  const LineScales scales(of_rows ? a : b, of_rows ? rows : columns, of_rows ? thread : thread - tile);
  const int slots = a.slots.first[3];
  const auto load = [&](int slot) {
    if (slot < slots) {
      const int stage = slot % stages;
      load_tile(a, rows, slot, tiles + stage * 2 * tile_bytes);
      load_tile(b, columns, slot, tiles + stage * 2 * tile_bytes + tile_bytes);
      factors[stage * 2 * tile + thread] = scales.factor(a.slots.group_of(slot));
    }
    copy_async_commit();
  };
  for (int slot = 0; slot < stages - 1; ++slot) load(slot);
  for (int slot = 0; slot < slots; ++slot) {
    copy_async_wait<stages - 2>();
    if constexpr (warpgroups && compiles_warpgroups) publish_to_warpgroups();
    __syncthreads();  // the slot is there, and the one before it is read
    load(slot + stages - 1);
    const int stage = slot % stages;
    const unsigned char* here = tiles + stage * 2 * tile_bytes;
    float sum[columns_each][4];
    multiply_tiles<of_a, warpgroups>(here, here + tile_bytes, sum);
    add_slot(sum, factors + stage * 2 * tile, factors + stage * 2 * tile + tile, total);
  }
}

template <Fp8Format of_a, class TC, bool warpgroups>
__global__ void __launch_bounds__(block_threads, 1)
    product_kernel(Fp8Codes a, Fp8Codes b, bool adds, View<TC, 2> c, unsigned row_tiles) {
  const TileLines rows{std::int64_t{blockIdx.x % row_tiles} * tile, c.rows()},
      columns{std::int64_t{blockIdx.x / row_tiles} * tile, c.columns()};
  float total[columns_each][4] = {};
  multiply<of_a, warpgroups>(a, rows, b, columns, total);
  store(total, rows, columns.first, adds, c);
}

template <Fp8Format of_a, bool warpgroups>
__global__ void __launch_bounds__(block_threads, 1)
    coded_rows_kernel(RowGroups groups, Fp8Codes a, Fp8Codes b, View<bf16, 2> c) {
  const std::int64_t N = c.columns();
  const GroupTile at = find_tile(groups, static_cast<int>(blockIdx.x), pieces_of(N, tile));
  if (at.group < 0) return;
  const TileLines rows{at.begin + at.row, at.begin + at.rows}, columns{at.group * N + at.column, (at.group + 1) * N};
  float total[columns_each][4] = {};
  multiply<of_a, warpgroups>(a, rows, b, columns, total);
  store(total, rows, at.column, false, c);
}

// The kernel that this thread's device has, by warps or by warpgroups, on so many tiles.
template <class Kernel, class... Arguments>
void start(Stream& stream, const char* what, std::int64_t tiles, Kernel* by_warps, Kernel* by_warpgroups,
           const Arguments&... arguments) {
  const bool warpgroups = device_has_warpgroups();
  const LaunchShape shape{tiles, block_threads, shared_bytes + (warpgroups ? warpgroup_alignment : 0)};
  launch(stream, what, warpgroups ? by_warpgroups : by_warps, shape, arguments...);
}

}  // namespace

template <class TC>
void fp8_product(Stream& stream, const Fp8Codes& a, const Fp8Codes& b, bool adds, View<TC, 2> c) {
  require(a.codes.rows() == c.rows() && b.codes.rows() == c.columns() && a.slots.count() == b.slots.count() &&
              b.format == Fp8Format::e4m3,
          "the extents or formats of a product of codes do not match");
  const std::int64_t row_tiles = (c.rows() + tile - 1) / tile, column_tiles = (c.columns() + tile - 1) / tile;
  if (row_tiles * column_tiles == 0) return;
  const auto run = [&](auto by_warps, auto by_warpgroups) {
    start(stream, "product of codes (tensor cores)", row_tiles * column_tiles, by_warps, by_warpgroups, a, b, adds, c,
          static_cast<unsigned>(row_tiles));
  };
  if (a.format == Fp8Format::e4m3)
    run(product_kernel<Fp8Format::e4m3, TC, false>, product_kernel<Fp8Format::e4m3, TC, true>);
  else
    run(product_kernel<Fp8Format::e5m2, TC, false>, product_kernel<Fp8Format::e5m2, TC, true>);
}
template void fp8_product<bf16>(Stream&, const Fp8Codes&, const Fp8Codes&, bool, View<bf16, 2>);
template void fp8_product<float>(Stream&, const Fp8Codes&, const Fp8Codes&, bool, View<float, 2>);

void fp8_grouped_rows(Stream& stream, const RowGroups& groups, const Fp8Codes& a, const Fp8Codes& b, View<bf16, 2> c) {
  require(a.codes.rows() == c.rows() && b.codes.rows() == groups.count * c.columns() && b.matrix_lines == c.columns() &&
              a.slots.count() == b.slots.count() && b.format == Fp8Format::e4m3,
          "the extents or formats of a grouped product of codes do not match");
  const std::int64_t tiles = most_group_tiles(groups, c.rows(), c.columns());
  if (tiles == 0) return;
  const auto run = [&](auto by_warps, auto by_warpgroups) {
    start(stream, "grouped rows of codes (tensor cores)", tiles, by_warps, by_warpgroups, groups, a, b, c);
  };
  if (a.format == Fp8Format::e4m3)
    run(coded_rows_kernel<Fp8Format::e4m3, false>, coded_rows_kernel<Fp8Format::e4m3, true>);
  else
    run(coded_rows_kernel<Fp8Format::e5m2, false>, coded_rows_kernel<Fp8Format::e5m2, true>);
}

}  // namespace forge
