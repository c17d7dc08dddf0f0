#include "layout/boxes.hpp"

#include <gtest/gtest.h>

namespace forge {
namespace {

const std::vector<Extents> shapes = {{1},       {7},          {3, 4},       {4, 1},          {1, 5},      {2, 3, 4},
                                     {3, 1, 2}, {2, 2, 2, 3}, {1, 1, 4, 2}, {2, 3, 1, 2, 2}, {5, 2, 3, 2}};

TEST(Boxes, IndexAndFlatAreInverse) {
  for (const Extents& shape : shapes)
    for (std::int64_t flat = 0; flat < element_count(shape); ++flat)
      EXPECT_EQ(flat_index(shape, index_at(shape, flat)), flat);
}

// Every range of every shape: the boxes name its elements in order, each once, and are at most 2n - 1.
TEST(Boxes, OfARangeAreItsElementsInOrder) {
  for (const Extents& shape : shapes) {
    const std::int64_t count = element_count(shape);
    for (std::int64_t begin = 0; begin <= count; ++begin)
      for (std::int64_t end = begin; end <= count; ++end) {
        const std::vector<Box> boxes = boxes_of(shape, {begin, end});
        ASSERT_LE(boxes.size(), 2 * shape.size() - 1);
        std::int64_t expected = begin;
        for (const Box& box : boxes)
          for (std::int64_t i = 0; i < box.size(); ++i) {
            Extents index = index_at(box.extent, i);
            for (std::size_t d = 0; d < index.size(); ++d) index[d] += box.offset[d];
            ASSERT_TRUE(box.contains(index));
            ASSERT_EQ(flat_index(shape, index), expected++);
          }
        ASSERT_EQ(expected, end);
      }
  }
}

TEST(Boxes, TheBoundIsReached) {
  EXPECT_EQ(boxes_of({3, 3, 3}, {1, 26}).size(), 5u);
}

TEST(Boxes, AScalarHasOne) {
  EXPECT_EQ(boxes_of({}, {0, 1}), std::vector<Box>{Box{}});
  EXPECT_TRUE(boxes_of({}, {0, 0}).empty());
}

TEST(Boxes, FlatShardsCutWithoutGapOrOverlap) {
  for (std::int64_t elements = 0; elements < 40; ++elements)
    for (int shards = 1; shards < 9; ++shards)
      for (const std::int64_t alignment : {1, 2, 3, 8}) {
        const std::int64_t size = flat_shard_size(elements, shards, alignment);
        EXPECT_EQ(size % alignment, 0);
        EXPECT_GE(size * shards, elements);
        EXPECT_LT(size * shards, elements + static_cast<std::int64_t>(shards) * alignment);
        std::int64_t next = 0;
        for (int i = 0; i < shards; ++i) {
          const Range part = flat_shard(elements, shards, i, alignment);
          EXPECT_EQ(part.begin, next);
          EXPECT_LE(part.size(), size);
          next = part.end;
        }
        EXPECT_EQ(next, elements);
      }
}

TEST(Boxes, IntersectionHoldsWhatBothHold) {
  const Extents shape{4, 5};
  std::vector<Box> boxes;
  for (std::int64_t r = 0; r < 4; ++r)
    for (std::int64_t c = 0; c < 5; ++c)
      for (std::int64_t h = 0; r + h <= 4; h += 2)
        for (std::int64_t w = 0; c + w <= 5; ++w) boxes.push_back({{r, c}, {h, w}});
  for (const Box& a : boxes)
    for (const Box& b : boxes) {
      const Box both = intersection(a, b);
      for (std::int64_t i = 0; i < element_count(shape); ++i) {
        const Extents index = index_at(shape, i);
        ASSERT_EQ(both.contains(index), a.contains(index) && b.contains(index));
      }
    }
}

}  // namespace
}  // namespace forge
