#include "parallel/level_sums.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <vector>

#include "../device_values.hpp"
#include "comm/thread_communicator.hpp"
#include "core/normal.hpp"

namespace forge::test {
namespace {

double drawn(int rank, std::int64_t i) {
  return static_cast<double>(
      static_cast<float>(normal(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i))));
}

template <class T>
double as_kept(float x) {
  return static_cast<double>(T(x));
}

// Of ranks on nodes: the bits of sums in fp32 inside nodes, rounded once between them but for the own, added in fp32 in
// the order of nodes; and the error keeps to the bound of parallel/level_sums.hpp.
template <class T>
void check(int nodes, int of_node, std::int64_t count) {
  const int all = nodes * of_node;
  run_ranks(all, [&](Communicator& world) {
    const int rank = world.rank(), own = rank / of_node;
    const auto node = world.split(own, rank), rail = world.split(rank % of_node, rank);
    Stream stream;
    std::vector<float> values;
    for (std::int64_t i = 0; i < all * count; ++i) values.push_back(static_cast<float>(drawn(rank, i)));
    const DeviceArray<float, 1> sums(stream, {{all * count}}, values);
    const DeviceArray<T, 1> sent(stream, {{nodes * count}}), received(stream, {{nodes * count}});
    sum_in_levels<T>(*node, *rail, stream, sums.view(), sums.view().slice(rank * count, (rank + 1) * count),
                     {sent.view().data, received.view().data});
    const std::vector<float> got = sums.get();
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t i = rank * count + j;
      float expected = 0;
      double exact = 0, others = 0, sizes = 0;
      for (int n = 0; n < nodes; ++n) {
        float of = 0;
        for (int r = n * of_node; r < (n + 1) * of_node; ++r) {
          of += static_cast<float>(drawn(r, i));
          exact += drawn(r, i);
          sizes += std::abs(drawn(r, i));
        }
        if (n != own) others += std::abs(static_cast<double>(of));
        expected += n == own ? of : static_cast<float>(as_kept<T>(of));
      }
      const float result = got[static_cast<std::size_t>(i)];
      ASSERT_EQ(result, expected) << "rank " << rank << ", " << j;
      const double u = std::is_same_v<T, bf16> ? 0x1p-8 : 0;
      ASSERT_LE(std::abs(static_cast<double>(result) - exact), u * others + all * 0x1p-23 * sizes);
    }
  });
}

TEST(LevelSums, AreThoseOfNodesRoundedOnce) {
  for (const auto& [nodes, of_node] : {std::pair{2, 2}, {2, 4}, {4, 2}, {3, 1}, {1, 3}})
    for (const std::int64_t count : {1, 7, 4096, 9000}) {
      check<bf16>(nodes, of_node, count);
      check<float>(nodes, of_node, count);
    }
}

}  // namespace
}  // namespace forge::test
