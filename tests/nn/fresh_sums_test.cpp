#include "nn/fresh_sums.hpp"

#include <gtest/gtest.h>

#include "../device_values.hpp"

namespace forge {
namespace {

constexpr std::int64_t n = 60;

struct FreshSumsTest : testing::Test {
  Stream stream;
  test::DeviceArray<double, 1> memory{stream, {{n}}, std::vector<double>(n, 7)};
  FreshSums<double> fresh;

  View<double, 2> part(std::int64_t begin, std::int64_t rows, std::int64_t columns, std::int64_t pitch) {
    return View<double, 2>(memory.view().data + begin, {{rows, columns}}, pitch);
  }
  // What stands in [begin, end); all else is as it was.
  void expect(std::int64_t begin, std::int64_t end, double value) {
    const std::vector<double> found = memory.get();
    for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(found[to_size(i)], i >= begin && i < end ? value : 7) << i;
  }
};

// Parts of one range, in any order: each once.
TEST_F(FreshSumsTest, EachPartIsTakenOnce) {
  fresh.begin(memory.view().data, 48);
  EXPECT_TRUE(fresh.take(stream, part(16, 2, 8, 8)));
  EXPECT_TRUE(fresh.take(stream, part(0, 2, 8, 8)));
  EXPECT_TRUE(fresh.take(stream, part(32, 4, 4, 4)));
  for (const std::int64_t begin : {0, 16, 32}) EXPECT_FALSE(fresh.take(stream, part(begin, 2, 8, 8))) << begin;
  EXPECT_FALSE(fresh.take(stream, part(48, 1, 8, 8))) << "behind the range";
  expect(0, 0, 0);
}

// Products that write a part of what they would have to overwrite, or rows with gaps, add to zeros.
TEST_F(FreshSumsTest, WhatIsNotOverwrittenIsCleared) {
  fresh.begin(memory.view().data + 8, 16);
  EXPECT_FALSE(fresh.take(stream, part(16, 2, 8, 8))) << "its second row holds something";
  expect(16, 24, 0);
  EXPECT_FALSE(fresh.take(stream, part(8, 2, 2, 4))) << "with a gap";
  fresh.clear(stream, memory.view().data, n);
  expect(8, 24, 0);
}

TEST_F(FreshSumsTest, ForgetsAll) {
  fresh.begin(memory.view().data, n);
  fresh.forget();
  EXPECT_FALSE(fresh.take(stream, part(0, 1, 8, 8)));
  expect(0, 0, 0);
}

}  // namespace
}  // namespace forge
