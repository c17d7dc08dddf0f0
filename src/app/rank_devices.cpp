#include "app/device_fit.hpp"

#include <map>
#include <string>
#include <vector>

#include "comm/device_communicator.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "device/near_cores.hpp"

namespace forge {

namespace {

std::string counted_gpus(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " GPU" : " GPUs");
}

// Of a node with such GPUs, by rank; empty where each rank has its own.
std::string shared_gpu(const World& world, Communicator& node, const std::string& own) {
  const std::vector<std::string> devices = node.gather_host(own),
                                 ranks = node.gather_host(std::to_string(world.rank()));
  std::map<std::string, std::string> users;
  std::string both;
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (const auto [user, is_new] = users.insert({devices[i], ranks[i]}); !is_new && both.empty())
      both = "ranks " + user->second + " and " + ranks[i];
  if (both.empty()) return "";
  const std::string name = world.node_name(world.rank()), most = std::to_string(users.size());
  return both + (name.empty() ? "" : " on " + name) + " have the same GPU: the node has " +
         std::to_string(devices.size()) + " ranks and " + counted_gpus(users.size()) +
         " for them, and NCCL wants one rank a GPU; legal: at most " + most + (users.size() == 1 ? " rank" : " ranks") +
         " a node (srun --ntasks-per-node=" + most + ", mpirun --map-by ppr:" + most + ":node)" +
         (name.empty() ? "" : ", or, for a test that needs no speed, FORGE_SHARE_GPU=1");
}

// The rank's cores become those near its GPU, which srun and mpirun don't know.
void move_near(const std::string& device, Communicator& node) {
  const std::vector<std::string> own = node.gather_host(list_of(own_cores())),
                                 near = node.gather_host(list_of(cores_near(device)));
  std::vector<RankCores> here;
  for (std::size_t i = 0; i < own.size(); ++i) here.push_back({cores_from(own[i]), cores_from(near[i])});
  const std::size_t position = to_size(node.rank());
  if (const Cores cores = shared_out(here, position); cores != here[position].own) use_cores(cores);
}

}  // namespace

void choose_device(const World& world) {
  select_device(world.local_rank());
  const std::string own = device_id();
  const bool processes = !world.node_name(0).empty();
  if (own.empty() || world.size() == 1 || (processes && devices_are_shared())) return;
  const auto ranks = world.make_world();
  const auto node = ranks->part([&](int rank) { return world.node(rank); });
  if (processes) move_near(own, *node);
  const auto problem = ranks->first_text(shared_gpu(world, *node, own));
  if (problem.rank >= 0) throw BadInput(problem.text);
}

}  // namespace forge
