#include "mesh_cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "../device_values.hpp"
#include "comm/mesh.hpp"

namespace forge::mesh_cases {

namespace {

// All (pp, dp_replicate, dp_shard, cp, tp) with this product.
std::vector<MeshShape> shapes_of(int ranks) {
  std::vector<MeshShape> shapes;
  const auto divides = [](int n, int d) { return n % d == 0; };
  for (int pp = 1; pp <= ranks; ++pp)
    for (int replicate = 1; divides(ranks, pp) && replicate <= ranks / pp; ++replicate)
      for (int shard = 1; divides(ranks / pp, replicate) && shard <= ranks / pp / replicate; ++shard)
        for (int cp = 1; divides(ranks / pp / replicate, shard) && cp <= ranks / pp / replicate / shard; ++cp)
          if (divides(ranks / pp / replicate / shard, cp)) {
            MeshShape shape{pp, replicate, shard, cp, ranks / pp / replicate / shard / cp};
            shape.etp = shape.tp;
            shape.edp = ranks / pp / shape.tp;
            shapes.push_back(shape);
          }
  return shapes;
}

// The group holds exactly these ranks of the world, in this order, as hosts see it.
void expect_host_members(Communicator& group, int rank, const std::vector<int>& members, const char* name) {
  ASSERT_EQ(group.size(), static_cast<int>(members.size())) << name;
  EXPECT_EQ(members[static_cast<std::size_t>(group.rank())], rank) << name;
  std::vector<std::string> expected;
  for (const int member : members) expected.push_back(std::to_string(member));
  EXPECT_EQ(group.gather_host(std::to_string(rank)), expected) << name;
}

// And as device memory sees it.
void expect_members(Communicator& group, int rank, const std::vector<int>& members, const char* name) {
  expect_host_members(group, rank, members, name);
  using Numbers = test::DeviceArray<std::int64_t, 1>;
  Stream stream;
  const Numbers mine(stream, {{1}}, {rank}), sum(stream, {{1}}, {rank}), all(stream, {{group.size()}});
  group.all_gather(stream, View<const std::int64_t, 1>(mine), all.view());
  group.all_reduce(stream, sum.view());
  const auto gathered = all.get();
  std::int64_t expected_sum = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    EXPECT_EQ(gathered[i], members[i]) << name;
    expected_sum += members[i];
  }
  EXPECT_EQ(sum.get().front(), expected_sum) << name;
}

// The groups beside the axes, from their definitions.
std::vector<int> copies_of(int rank, int copies) {
  std::vector<int> members;
  for (int i = 0; i < copies; ++i) members.push_back(rank / copies * copies + i);
  return members;
}
std::vector<int> tied_ranks(const Grid& grid, int rank) {
  const int last = grid.extent(0) - 1, stage = grid.coordinate(rank, 0);
  if (last == 0 || (stage != 0 && stage != last)) return {rank};
  const int first_rank = rank - stage * grid.stride(0);
  return {first_rank, first_rank + last * grid.stride(0)};
}

void one_mesh(Communicator& world, const MeshShape& shape, int copies) {
  const int rank = world.rank();
  const Grid grid = shape.dense();
  Mesh mesh(world.duplicate(), shape, {copies, {0, shape.pp - 1}});
  EXPECT_EQ(mesh.rank(), rank);
  const auto along = [&](AxisBits axes) { return grid.group_of(rank, axes); };
  const auto axis = [&](Axis a) { return along(bits_of({a})); };
  expect_host_members(mesh.world(), rank, along(grid.all_axes()), "world");
  expect_host_members(mesh.data(), rank, along(data_axes), "data");
  expect_members(mesh.scalars(), rank, along(grid.all_axes()), "scalars");
  expect_members(mesh.tp(), rank, axis(Axis::tp), "tp");
  expect_members(mesh.tp_behind(), rank, axis(Axis::tp), "tp_behind");
  expect_members(mesh.cp(), rank, axis(Axis::cp), "cp");
  expect_members(mesh.pipeline(), rank, axis(Axis::pp), "pipeline");
  expect_members(mesh.of(Group::gradients), rank, along(gradient_axes), "gradients");
  expect_members(mesh.of(Group::gradient_shards), rank, along(shard_axes), "gradient_shards");
  expect_members(mesh.of(Group::gradient_replicas), rank, axis(Axis::dp_replicate), "gradient_replicas");
  expect_members(mesh.of(Group::gradient_tp), rank, axis(Axis::tp), "gradient_tp");
  expect_members(mesh.of(Group::gradient_copies), rank, copies_of(rank, copies), "gradient_copies");
  expect_members(mesh.gradient_tied(), rank, tied_ranks(grid, rank), "gradient_tied");
  expect_members(mesh.parameter_shards(), rank, along(shard_axes), "parameter_shards");
  EXPECT_EQ(mesh.tp().rank(), mesh.coordinate(Axis::tp));
  EXPECT_EQ(mesh.pipeline().rank(), mesh.coordinate(Axis::pp));
  EXPECT_EQ(mesh.of(Group::gradients).rank(), mesh.index(gradient_axes));
  const auto sent = [&mesh] {
    std::int64_t bytes = 0;
    for (const auto& [name, traffic] : mesh.traffic()) bytes += traffic.total_bytes();
    return bytes;
  };
  const std::int64_t before = sent();
  mesh.connect();
  EXPECT_EQ(sent(), before);
}

// What a stage of ZeRO has no use for isn't made.
void unused_groups(Communicator& world) {
  MeshShape shape;
  shape.dp_shard = shape.edp = world.size();
  for (const bool sharded : {false, true}) {
    MeshGroups groups;
    groups.experts = true;
    groups.whole = !sharded;
    groups.sharded = sharded;
    Mesh mesh(world.duplicate(), shape, groups);
    const int all = world.size();
    for (const Group g : {Group::gradients, Group::expert_gradients}) EXPECT_EQ(mesh.of(g).size(), sharded ? 1 : all);
    for (const Group g : {Group::gradient_shards, Group::parameter_shards, Group::expert_gradient_shards,
                          Group::expert_parameter_shards})
      EXPECT_EQ(mesh.of(g).size(), sharded ? all : 1);
  }
}

// Two levels of sums over shards: those of a node follow each other, on a rail one of each node. Experts' shards stand
// ep etp apart, each here on a node of its own.
void shard_levels(Communicator& world) {
  const int n = world.size(), rank = world.rank();
  for (const int tp : {1, 2})
    for (const int nodes : {2, 3, 4}) {
      if (n % (nodes * tp) != 0) continue;
      MeshShape shape;
      shape.tp = shape.etp = tp;
      shape.dp_shard = n / tp;
      shape.ep = n / tp / nodes;
      shape.edp = shape.shard_nodes = shape.expert_shard_nodes = nodes;
      MeshGroups groups;
      groups.experts = true;
      Mesh mesh(world.duplicate(), shape, groups);
      std::vector<int> of_node, rail;
      for (int r = rank % tp; r < n; r += tp) {
        if (r * nodes / n == rank * nodes / n) of_node.push_back(r);
        if (r % (n / nodes) == rank % (n / nodes)) rail.push_back(r);
      }
      expect_members(mesh.of(Group::gradient_node), rank, of_node, "gradient_node");
      expect_members(mesh.of(Group::gradient_rail), rank, rail, "gradient_rail");
      expect_members(mesh.of(Group::expert_gradient_node), rank, {rank}, "expert_gradient_node");
      expect_members(mesh.of(Group::expert_gradient_rail), rank, rail, "expert_gradient_rail");
      for (const Group g : {Group::gradient_shards, Group::expert_gradient_shards}) EXPECT_EQ(mesh.of(g).size(), 1);
      EXPECT_EQ(mesh.parameter_shards().size(), n / tp);
    }
}

}  // namespace

void every_mesh(Communicator& world) {
  for (const MeshShape& shape : shapes_of(world.size()))
    for (int copies = 1; copies <= shape.tp; ++copies)
      if (shape.tp % copies == 0) one_mesh(world, shape, copies);
  unused_groups(world);
  shard_levels(world);
  MeshShape wrong;
  wrong.tp = world.size() + 1;
  EXPECT_THROW(Mesh(world.duplicate(), wrong), Error);
  wrong.tp = world.size();
  EXPECT_THROW(Mesh(world.duplicate(), wrong, {world.size() + 1, {0, 0}}), Error);
}

void traffic(Communicator& world) {
  const int n = world.size();
  MeshShape shape;
  shape.dp_shard = shape.edp = n;
  Mesh mesh(world.duplicate(), shape);
  Stream stream;
  const test::DeviceArray<float, 1> whole(stream, {{12 * n}}), part(stream, {{12}});
  mesh.parameter_shards().all_gather(stream, part.view().data, whole.view().data, 12, DType::f32);
  mesh.of(Group::gradient_shards).reduce_scatter(stream, whole.view().data, part.view().data, 12, DType::f32);
  mesh.of(Group::gradients).all_reduce(stream, whole.view().data, 12 * n, DType::f32);
  stream.synchronize();
  const auto expect = [&](const std::string& name, const Traffic& sent) {
    const std::int64_t shards = 12 * (n - 1) * 4;
    EXPECT_EQ(sent.total_bytes(), name == "gradients"                                       ? 2 * shards
                                  : name == "parameter_shards" || name == "gradient_shards" ? shards
                                                                                            : 0)
        << name;
  };
  for (const auto& [name, sent] : mesh.traffic()) expect(name, sent);
}

}  // namespace forge::mesh_cases
