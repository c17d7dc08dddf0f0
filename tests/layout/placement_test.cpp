#include "layout/placement.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace forge {
namespace {

struct Case {
  Extents shape;
  std::vector<AxisSplit> axes;
};

// All ways to treat a small matrix on up to two mesh axes: replicated, cut along either dimension, with copies, with
// granules, with remainders.
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Extents& shape : std::vector<Extents>{{6}, {5, 4}, {8, 6}, {3, 2, 4}})
    for (const int outer : {1, 2, 3})
      for (const int inner : {1, 2, 4})
        for (int outer_dim = -1; outer_dim < static_cast<int>(shape.size()); ++outer_dim)
          for (int inner_dim = -1; inner_dim < static_cast<int>(shape.size()); ++inner_dim)
            for (const int pieces : {0, 1, 2})
              for (const std::int64_t granule : {1, 2}) {
                if (outer_dim >= 0 && outer_dim == inner_dim) continue;
                if (pieces > inner) continue;
                if (inner_dim >= 0 && shape[static_cast<std::size_t>(inner_dim)] % granule != 0) continue;
                result.push_back({shape, {AxisSplit::cut(outer, outer_dim), {inner, inner_dim, pieces, granule}}});
              }
  return result;
}

TEST(Placement, GlobalToLocalAndBack) {
  for (const Case& c : cases()) {
    const Placement placement(c.shape, c.axes);
    for (int rank = 0; rank < placement.ranks(); ++rank) {
      std::int64_t held = 0;
      for (std::int64_t i = 0; i < element_count(c.shape); ++i) {
        const Extents global = index_at(c.shape, i);
        const auto local = placement.to_local(rank, global);
        ASSERT_EQ(local.has_value(), placement.box(rank).contains(global));
        if (!local) continue;
        ++held;
        ASSERT_EQ(placement.to_global(rank, *local), global);
      }
      ASSERT_EQ(held, placement.box(rank).size());
      std::int64_t padding = 0;
      for (std::int64_t i = 0; i < element_count(placement.local_shape()); ++i)
        padding += !placement.to_global(rank, index_at(placement.local_shape(), i));
      ASSERT_EQ(held + padding, element_count(placement.local_shape()));
      if (!placement.padded()) {
        ASSERT_EQ(padding, 0);
      }
    }
  }
}

TEST(Placement, EveryElementHasOneOwnerAndItsCopies) {
  for (const Case& c : cases()) {
    const Placement placement(c.shape, c.axes);
    for (std::int64_t i = 0; i < element_count(c.shape); ++i) {
      const Extents global = index_at(c.shape, i);
      std::vector<int> holders, owners;
      for (int rank = 0; rank < placement.ranks(); ++rank) {
        if (!placement.to_local(rank, global)) continue;
        holders.push_back(rank);
        if (placement.owns(rank)) owners.push_back(rank);
      }
      ASSERT_EQ(owners, std::vector<int>{placement.owner(global)});
      for (const int rank : holders) ASSERT_EQ(placement.copies_of(rank), holders);
    }
  }
}

// Flat shards of all owners' local buffers, taken together, are the tensor: each element once.
TEST(Placement, FlatShardsOfTheOwnersCoverTheTensor) {
  for (const Case& c : cases())
    for (const int shards : {1, 3}) {
      const Placement placement(c.shape, c.axes);
      std::vector<int> seen(static_cast<std::size_t>(element_count(c.shape)), 0);
      for (int rank = 0; rank < placement.ranks(); ++rank) {
        if (!placement.owns(rank)) continue;
        for (int shard = 0; shard < shards; ++shard) {
          const Range range = flat_shard(element_count(placement.local_shape()), shards, shard);
          for (const Box& box : placement.boxes_of_local(rank, range))
            for (std::int64_t i = 0; i < box.size(); ++i) {
              Extents index = index_at(box.extent, i);
              for (std::size_t d = 0; d < index.size(); ++d) index[d] += box.offset[d];
              const auto local = placement.to_local(rank, index);
              ASSERT_TRUE(local);
              const std::int64_t flat = flat_index(placement.local_shape(), *local);
              ASSERT_TRUE(flat >= range.begin && flat < range.end);
              ++seen[static_cast<std::size_t>(flat_index(c.shape, index))];
            }
        }
      }
      for (const int count : seen) ASSERT_EQ(count, 1);
    }
}

TEST(Placement, TwoKeyHeadsOnFourRanks) {
  const Placement placement({6, 10}, {AxisSplit::cut_or_copy(4, 0, 2, 3)});
  EXPECT_EQ(placement.local_shape(), (Extents{3, 10}));
  EXPECT_EQ(placement.copies_of(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(placement.copies_of(3), (std::vector<int>{2, 3}));
  EXPECT_EQ(placement.box(2), (Box{{3, 0}, {3, 10}}));
  EXPECT_FALSE(placement.padded());
}

TEST(Placement, APrimeVocabularyIsPadded) {
  const Placement placement({13, 4}, {AxisSplit::cut(4, 0)});
  EXPECT_EQ(placement.local_shape(), (Extents{4, 4}));
  EXPECT_TRUE(placement.padded());
  EXPECT_EQ(placement.box(3), (Box{{12, 0}, {1, 4}}));
  EXPECT_EQ(Placement({5}, {AxisSplit::cut(4, 0)}).box(3).size(), 0);  // 2 + 2 + 1 + nothing
}

TEST(Placement, RefusesWhatIsNoPlacement) {
  EXPECT_THROW(Placement({4}, {AxisSplit::cut(2, 1)}), Error);
  EXPECT_THROW(Placement({4}, {AxisSplit::cut(2, 0), AxisSplit::cut(2, 0)}), Error);
  EXPECT_THROW(Placement({4}, {AxisSplit{4, 0, 3, 1}}), Error);
  EXPECT_THROW(Placement({5}, {AxisSplit::cut(2, 0, 2)}), Error);
}

}  // namespace
}  // namespace forge
