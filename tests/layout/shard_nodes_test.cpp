#include "layout/shard_nodes.hpp"

#include <gtest/gtest.h>

namespace forge {
namespace {

MeshShape mesh_of(int shards, int cp, int tp, int ep = 1, int etp = 1) {
  MeshShape mesh;
  mesh.dp_shard = shards;
  mesh.cp = cp;
  mesh.tp = tp;
  mesh.ep = ep;
  mesh.etp = etp;
  mesh.edp = shards * cp * tp / (ep * etp);
  return mesh;
}

TEST(ShardNodes, OfDenseParameters) {
  EXPECT_EQ(shard_nodes(mesh_of(8, 1, 1), 4).dense, 2);
  EXPECT_EQ(shard_nodes(mesh_of(8, 1, 1), 1).dense, 8);
  EXPECT_EQ(shard_nodes(mesh_of(4, 2, 2), 4).dense, 4) << "two shards a node";
  EXPECT_EQ(shard_nodes(mesh_of(4, 2, 4), 4).dense, 8) << "one a node";
  EXPECT_EQ(shard_nodes(mesh_of(4, 2, 8), 4).dense, 8) << "tp over two nodes";
  EXPECT_EQ(shard_nodes(mesh_of(8, 1, 1), 8).dense, 1) << "all on one";
  EXPECT_EQ(shard_nodes(mesh_of(12, 1, 1), 8).dense, 1) << "half a node more";
  EXPECT_EQ(shard_nodes(mesh_of(8, 1, 3), 4).dense, 1) << "tp over parts of nodes";
  EXPECT_EQ(shard_nodes(mesh_of(8, 1, 1), 0).dense, 1) << "not known";
}

// They stand ep etp ranks apart.
TEST(ShardNodes, OfExperts) {
  EXPECT_EQ(shard_nodes(mesh_of(16, 1, 1, 4), 8).experts, 2);
  EXPECT_EQ(shard_nodes(mesh_of(16, 1, 1, 8), 8).experts, 2);
  EXPECT_EQ(shard_nodes(mesh_of(16, 1, 1, 8), 4).experts, 2);
  EXPECT_EQ(shard_nodes(mesh_of(16, 1, 1, 16), 8).experts, 1) << "one shard";
  EXPECT_EQ(shard_nodes(mesh_of(8, 1, 2, 2, 2), 8).experts, 2);
}

TEST(ShardNodes, SayWhyThereIsOneLevel) {
  EXPECT_EQ(shard_nodes(mesh_of(8, 1, 1), 4).rule, "");
  EXPECT_NE(shard_nodes(mesh_of(8, 1, 1), 8).rule.find("= 8, mesh.tp = 1 on nodes of 8 ranks"), std::string::npos);
  EXPECT_NE(shard_nodes(mesh_of(8, 1, 1), 0).rule.find("not known"), std::string::npos);
}

}  // namespace
}  // namespace forge
