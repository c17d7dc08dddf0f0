#include "app/device_fit.hpp"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "comm/device_communicator.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "device/near_cores.hpp"

namespace forge {

namespace {

// devices: of all ranks; two of node's ranks have the same one.
std::string refusal(const World& world, const std::vector<std::string>& devices, int node, const std::string& both,
                    bool processes) {
  std::set<std::string> gpus;
  int ranks = 0;
  for (int rank = 0; rank < world.size(); ++rank)
    if (world.node(rank) == node) {
      gpus.insert(devices[to_size(rank)]);
      ++ranks;
    }
  const std::string count = std::to_string(gpus.size());
  return both + ": the node has " + std::to_string(ranks) + " ranks and " + count +
         (gpus.size() == 1 ? " GPU" : " GPUs") + " for them, and NCCL wants one rank a GPU; legal: at most " + count +
         (gpus.size() == 1 ? " rank" : " ranks") + " a node (srun --ntasks-per-node=" + count +
         ", mpirun --map-by ppr:" + count + ":node)" +
         (processes ? ", or, for a test that needs no speed, FORGE_SHARE_GPU=1" : "");
}

// The rank's cores become those near its GPU, which srun and mpirun don't know.
void move_near(const std::string& device, const World& world, Communicator& ranks) {
  const std::vector<std::string> own = ranks.gather_host(list_of(own_cores())),
                                 near = ranks.gather_host(list_of(cores_near(device)));
  std::vector<RankCores> here;
  std::size_t position = 0;
  for (int rank = 0; rank < world.size(); ++rank)
    if (world.node(rank) == world.node(world.rank())) {
      if (rank == world.rank()) position = here.size();
      here.push_back({cores_from(own[to_size(rank)]), cores_from(near[to_size(rank)])});
    }
  if (const Cores cores = shared_out(here, position); cores != here[position].own) use_cores(cores);
}

}  // namespace

void choose_device(const World& world) {
  select_device(world.local_rank());
  const std::string own = device_id();
  const bool processes = !world.node_name(0).empty();
  if (own.empty() || world.size() == 1 || (processes && devices_are_shared())) return;
  const auto ranks = world.make_world();
  if (processes) move_near(own, world, *ranks);
  const std::vector<std::string> devices = ranks->gather_host(own);
  std::map<std::pair<int, std::string>, int> users;
  for (int rank = 0; rank < world.size(); ++rank) {
    const int node = world.node(rank);
    const auto [user, is_new] = users.insert({{node, devices[to_size(rank)]}, rank});
    if (is_new) continue;
    const std::string both = "ranks " + std::to_string(user->second) + " and " + std::to_string(rank) +
                             (processes ? " on " + world.node_name(rank) : "") + " have the same GPU";
    throw BadInput(refusal(world, devices, node, both, processes));
  }
}

}  // namespace forge
