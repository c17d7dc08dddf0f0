#include "layout/mesh_shape.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"

namespace forge {
namespace {

std::string refusal(const MeshDeck& deck, std::int64_t world) {
  try {
    resolve_mesh(deck, world);
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(Grid, CoordinatesAreRowMajor) {
  const Grid grid({2, 1, 3, 2});
  ASSERT_EQ(grid.size(), 12);
  for (int rank = 0; rank < grid.size(); ++rank) {
    int sum = 0;
    for (int axis = 0; axis < grid.axes(); ++axis) sum += grid.coordinate(rank, axis) * grid.stride(axis);
    EXPECT_EQ(sum, rank);
  }
  for (int axis = 0; axis < grid.axes(); ++axis) EXPECT_EQ(grid.coordinate(7, axis), axis == 0 || axis == 3) << axis;
}

// For every set of axes: a group is the ranks whose other coordinates are the same.
TEST(Grid, GroupsOfEverySetOfAxes) {
  const Grid grid({2, 3, 1, 2});
  for (AxisBits axes = 0; axes <= grid.all_axes(); ++axes)
    for (int rank = 0; rank < grid.size(); ++rank) {
      std::vector<int> expected;
      for (int other = 0; other < grid.size(); ++other) {
        bool same = true;
        for (int a = 0; a < grid.axes(); ++a)
          if (!(axes >> a & 1u)) same &= grid.coordinate(other, a) == grid.coordinate(rank, a);
        if (same) expected.push_back(other);
      }
      const std::vector<int> group = grid.group_of(rank, axes);
      ASSERT_EQ(group, expected);
      ASSERT_EQ(static_cast<int>(group.size()), grid.group_size(axes));
      ASSERT_EQ(group[static_cast<std::size_t>(grid.index_in_group(rank, axes))], rank);
      for (int other = 0; other < grid.size(); ++other) {
        const bool member = std::find(group.begin(), group.end(), other) != group.end();
        ASSERT_EQ(grid.group_number(other, axes) == grid.group_number(rank, axes), member);
      }
    }
}

TEST(MeshShape, TheRestGoesToDpShard) {
  const MeshShape mesh = resolve_mesh({.pp = 2, .tp = 2}, 24);
  EXPECT_EQ(mesh.dp_shard, 6);
  EXPECT_EQ(mesh.world(), 24);
  EXPECT_EQ(mesh.etp, 2);
  EXPECT_EQ(mesh.edp, 6);
  EXPECT_EQ(mesh.dense().group_of(0, bits_of({Axis::tp})), (std::vector<int>{0, 1}));
  EXPECT_EQ(mesh.dense().group_of(0, bits_of({Axis::pp})), (std::vector<int>{0, 12}));
}

// Every legal expert layout of small worlds: the views agree, and the shares of expert parameters come out whole.
TEST(MeshShape, BothViewsHoldTheSameRanksPerStage) {
  int legal = 0;
  for (const std::int64_t pp : {1, 2})
    for (const std::int64_t replicate : {1, 2, 3})
      for (const std::int64_t shard : {1, 2, 4})
        for (const std::int64_t cp : {1, 2})
          for (const std::int64_t tp : {1, 2, 4})
            for (const std::int64_t ep : {1, 2, 3, 4, 8, 16})
              for (const std::int64_t etp : {0, 1, 2}) {
                const std::int64_t world = pp * replicate * shard * cp * tp;
                const MeshDeck deck{pp, replicate, shard, cp, tp, ep, etp};
                const std::int64_t e = ep * (etp == 0 ? tp : etp), inner = shard * cp * tp;
                const bool rule =
                    (etp == 0 || tp % etp == 0) && (world / pp) % e == 0 && (inner % e == 0 || e % inner == 0);
                ASSERT_EQ(refusal(deck, world).empty(), rule) << refusal(deck, world);
                if (!rule) continue;
                ++legal;
                const MeshShape mesh = resolve_mesh(deck, world);
                EXPECT_EQ(mesh.expert().size(), mesh.dense().size());
                EXPECT_EQ(mesh.expert_shards() * mesh.expert_replicas(), mesh.edp);
                EXPECT_EQ(mesh.expert_shards(), inner % e == 0 ? inner / e : 1);
                if (inner % e == 0) {
                  EXPECT_EQ(mesh.expert_replicas(), replicate);
                }
                for (int rank = 0; rank < mesh.world(); ++rank)
                  EXPECT_EQ(mesh.dense().coordinate(rank, 0), mesh.expert().coordinate(rank, 0));
              }
  EXPECT_GT(legal, 500);
}

TEST(MeshShape, ExpertParallelAsAFactorOfTheWorld) {
  const MeshShape mesh = resolve_mesh({.dp_shard = 4, .ep = 8}, 32);  // 4 * 8 ranks
  EXPECT_EQ(mesh.dp_shard, 32);
  EXPECT_EQ(mesh.edp, 4);
  EXPECT_EQ(resolve_mesh({.dp_shard = 32, .ep = 8}, 32).dp_shard, 32);
}

TEST(MeshShape, DeepSeekV3FoldsExpertsOverTensorRanks) {
  const MeshShape mesh = resolve_mesh({.pp = 16, .tp = 2, .ep = 64, .etp = 1}, 1024);
  EXPECT_EQ(mesh.edp, 1);
  EXPECT_EQ(mesh.expert_shards(), 1);
  const MeshDeck folded_not{.pp = 16, .tp = 2, .ep = 64};
  expect_parts(refusal(folded_not, 1024), {"2048 ranks with mesh.etp 2", "1024 ranks with mesh.etp 1", "mesh.ep 32"});
  EXPECT_EQ(refusal(folded_not, 2048), "");
}

TEST(MeshShape, RefusalsNameEquationAndNearestValues) {
  expect_parts(refusal({.pp = 2, .dp_shard = 4, .tp = 4}, 8),
               {"pp 2 * dp_replicate 1 * dp_shard 4 * cp 1 * tp 4 = 32", "the world is 8 ranks", "mpirun -n 32",
                "srun --ntasks=32", "--ranks 32", "mesh.dp_shard to 1 or -1"});
  expect_parts(refusal({.tp = 3}, 8), {"tp 3 = 3 does not divide the world of 8 ranks", "6 or 9"});
  expect_parts(refusal({.tp = 4}, 1), {"does not divide the world of 1 rank;", "numbers of ranks: 4: start 4 ranks"});
  expect_parts(refusal({.tp = 4, .etp = 3}, 4), {"mesh.etp 3 must divide mesh.tp 4", "1, 2, 4"});
  expect_parts(refusal({.ep = 3}, 4), {"ep 3 * etp 1 = 3 does not divide", "mesh.ep 2 or 4", "for ep 3 6 ranks"});
  expect_parts(refusal({.dp_replicate = 2, .ep = 4, .etp = 1}, 12), {"one must divide the other"});
  const std::string both = refusal({.pp = 0, .dp_shard = 0, .cp = -3}, 4);  // one report
  expect_parts(both, {"mesh.pp must be at least 1", "mesh.dp_shard", "or -1", "mesh.cp", "is -3"});
  const std::int64_t huge = std::int64_t{1} << 24;
  expect_parts(refusal({huge, huge, huge, huge, huge}, 4), {"the world is 4 ranks"});
}

TEST(MeshShape, RanksOfADeck) {
  EXPECT_EQ(ranks_of({.pp = 2, .dp_shard = 3, .tp = 2}), 12);
  EXPECT_EQ(ranks_of({.pp = 2, .tp = 3}), 6);
}

TEST(MeshShape, TheTableShowsEveryAxis) {
  const std::string dense = mesh_table(resolve_mesh({.pp = 2, .tp = 2}, 32), 5);
  expect_parts(dense, {"pp                 2      16  5 21", "dp_shard           8       2  1 3 5 7 9 11 13 15",
                       "tp                 2       1  4 5"});
  EXPECT_EQ(dense.find("edp"), std::string::npos);
  expect_parts(mesh_table(resolve_mesh({}, 12), 3), {"dp_shard          12       1  0 1 2 3 ... 10 11 "});
  expect_parts(mesh_table(resolve_mesh({.ep = 4}, 8), 0),
               {"edp                2       4  0 4", "ep                 4"});
}

}  // namespace
}  // namespace forge
