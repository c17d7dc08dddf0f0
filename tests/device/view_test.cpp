#include "core/view.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace forge {
namespace {

TEST(View, extents_and_pitch) {
  std::vector<float> memory(60);
  const View<float, 3> v(memory.data(), {{4, 2, 3}}, 15);
  EXPECT_EQ(v.rows(), 4);
  EXPECT_EQ(v.columns(), 6);
  EXPECT_EQ(v.size(), 24);
  EXPECT_FALSE(v.dense());
  EXPECT_EQ(v.row(2), memory.data() + 30);
  EXPECT_EQ(v.slice(1, 3).rows(), 2);
  EXPECT_EQ(v.slice(1, 3).row(1), v.row(2));
  const View<const float, 3> read_only = v;
  EXPECT_EQ(read_only.pitch, 15);
}

TEST(View, columns_of_a_matrix) {
  std::vector<float> memory(20);
  const View<float, 2> m(memory.data(), {{4, 5}});
  EXPECT_TRUE(m.dense());
  const auto part = columns_of(m, 2, 3);
  EXPECT_EQ(part.row(1), memory.data() + 7);
  EXPECT_EQ(part.columns(), 3);
  EXPECT_TRUE((View<float, 2>().empty()));
}

TEST(View, vectors) {
  std::vector<int> memory{1, 2, 3, 4};
  const View<int, 1> v(memory.data(), {{4}});
  EXPECT_EQ(v.slice(1, 3)[1], 3);
  EXPECT_EQ(v.slice(1, 3).size(), 2);
}

}  // namespace
}  // namespace forge
