#include "kernels/rows/bit_sums.hpp"

#include "core/random.hpp"
#include "device/parallel.hpp"

namespace forge {

namespace {

// partial[b] = Σ_j mix(j, bits of x[j]) of block b; the number of blocks.
template <class W>
std::int64_t sum_blocks(Stream& stream, View<const W, 1> x, View<std::uint64_t, 1> partial) {
  const std::int64_t n = x.rows(), block = (n + sum_partials - 1) / sum_partials;
  const std::int64_t blocks = block > 0 ? (n + block - 1) / block : 0;
  parallel_rows(stream, blocks, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    const std::int64_t begin = b * block, size = n - begin < block ? n - begin : block;
    const std::uint64_t sum = team.template sum<std::uint64_t>(
        size, [=](std::int64_t j) { return mix(static_cast<std::uint64_t>(begin + j), x[begin + j]); });
    if (team.leads()) partial[b] = sum;
  });
  return blocks;
}

}  // namespace

template <class W>
void sum_bits(Stream& stream, View<const W, 1> x, View<std::uint64_t, 1> partial, View<std::uint64_t, 1> out) {
  const std::int64_t blocks = sum_blocks(stream, x, partial);
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const std::uint64_t sum = team.template sum<std::uint64_t>(blocks, [=](std::int64_t b) { return partial[b]; });
    if (team.leads()) out[0] = sum;
  });
}

template <class W>
void add_bits(Stream& stream, View<const W, 1> x, std::uint64_t number, View<std::uint64_t, 1> partial,
              View<std::uint64_t, 1> total) {
  const std::int64_t blocks = sum_blocks(stream, x, partial);
  parallel_rows(stream, 1, [=] FORGE_LAMBDA(std::int64_t, Team team) {
    const std::uint64_t sum = team.template sum<std::uint64_t>(blocks, [=](std::int64_t b) { return partial[b]; });
    if (team.leads()) total[0] += mix(number, sum);
  });
}

FORGE_INSTANTIATE_ONE(sum_bits<std::uint8_t>);
FORGE_INSTANTIATE_ONE(sum_bits<std::uint16_t>);
FORGE_INSTANTIATE_ONE(sum_bits<std::uint32_t>);
FORGE_INSTANTIATE_ONE(sum_bits<std::uint64_t>);
FORGE_INSTANTIATE_ONE(add_bits<std::uint32_t>);
FORGE_INSTANTIATE_ONE(add_bits<std::uint64_t>);

}  // namespace forge
