#include "kernels/rows/rounded_sums.hpp"

#include "kernels/rows/block_draws.hpp"

namespace forge {

namespace {

// f(team, begin, n, random) of each block of n elements, `random` being the row of their draws.
template <class F>
void in_rounded_blocks(Stream& stream, const Rounding& rounding, std::int64_t elements, F f) {
  parallel_rows(stream, (elements + rounding_block - 1) / rounding_block, [=] FORGE_LAMBDA(std::int64_t b, Team team) {
    const std::int64_t begin = b * rounding_block, left = elements - begin,
                       n = left < rounding_block ? left : rounding_block;
    BlockDraws<1> draws;
    draws.fill(team, 0, rounding, 0, begin, n);
    f(team, begin, n, draws.row(0));
  });
}

}  // namespace

template <class T>
void add_rounded(Stream& stream, const Rounding& rounding, View<const acc_t<T>, 1> x, View<T, 1> sums) {
  using A = acc_t<T>;
  in_rounded_blocks(stream, rounding, sums.rows(),
                    [=] FORGE_LAMBDA(Team team, std::int64_t begin, std::int64_t n, const std::uint16_t* random) {
                      team.map(
                          n, [](T& sum, const A& x_i, const std::uint16_t& r) { sum = rounded<T>(A(sum) + x_i, r); },
                          in_place(sums.data + begin), x.data + begin, random);
                    });
}

template <class T>
void set_rounded(Stream& stream, const Rounding& rounding, View<const acc_t<T>, 1> x, View<T, 1> sums) {
  using A = acc_t<T>;
  in_rounded_blocks(stream, rounding, sums.rows(),
                    [=] FORGE_LAMBDA(Team team, std::int64_t begin, std::int64_t n, const std::uint16_t* random) {
                      team.map(
                          n, [](T& sum, const A& x_i, const std::uint16_t& r) { sum = rounded<T>(x_i, r); },
                          sums.data + begin, x.data + begin, random);
                    });
}

template <class T>
void add_sums(Stream& stream, View<const T, 1> sums, View<acc_t<T>, 1> x) {
  using A = acc_t<T>;
  const T* const in = sums.data;
  A* const to = x.data;
  parallel_for(stream, x.rows(), [=] FORGE_LAMBDA(std::int64_t i) { to[i] += A(in[i]); });
}

FORGE_INSTANTIATE_FUNCTION(add_rounded);
FORGE_INSTANTIATE_FUNCTION(set_rounded);
FORGE_INSTANTIATE_FUNCTION(add_sums);

}  // namespace forge
