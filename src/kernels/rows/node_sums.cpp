#include "kernels/rows/node_sums.hpp"

#include "device/parallel.hpp"

namespace forge {

namespace {

constexpr std::int64_t numbers_of_block = 4096;

std::int64_t blocks_of(std::int64_t count) {
  return (count + numbers_of_block - 1) / numbers_of_block;
}

FORGE_INLINE std::int64_t size_of_block(std::int64_t begin, std::int64_t count) {
  return count - begin < numbers_of_block ? count - begin : numbers_of_block;
}

}  // namespace

template <class T>
void round_nodes(Stream& stream, View<const acc_t<T>, 2> from, View<T, 2> to) {
  using A = acc_t<T>;
  const std::int64_t count = to.columns(), blocks = blocks_of(count);
  parallel_rows(stream, to.rows() * blocks, [=] FORGE_LAMBDA(std::int64_t task, Team team) {
    const std::int64_t n = quotient(task, blocks), begin = (task - n * blocks) * numbers_of_block;
    team.map(
        size_of_block(begin, count), [](const A& x, T& y) { y = T(x); }, from.row(n) + begin, to.row(n) + begin);
  });
}

template <class T>
void add_nodes(Stream& stream, View<const T, 2> received, std::int64_t own, View<acc_t<T>, 1> sum) {
  using A = acc_t<T>;
  const std::int64_t count = sum.size(), nodes = received.rows();
  parallel_rows(stream, blocks_of(count), [=] FORGE_LAMBDA(std::int64_t block, Team team) {
    const std::int64_t begin = block * numbers_of_block, n = size_of_block(begin, count);
    A* const to = sum.data + begin;
    team.each(n, [=](std::int64_t j) {
      A value = 0;
      for (std::int64_t k = 0; k < nodes; ++k) value += k == own ? to[j] : A(received.row(k)[begin + j]);
      to[j] = value;
    });
  });
}

FORGE_INSTANTIATE_FUNCTION(round_nodes);
FORGE_INSTANTIATE_FUNCTION(add_nodes);

}  // namespace forge
