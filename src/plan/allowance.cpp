#include "plan/allowance.hpp"

#include <algorithm>

#include "core/bytes.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr std::size_t mib = 1 << 20;
constexpr std::size_t connection = 12 * mib;       // buffers of a channel to one other rank: 10 to receive, 2 to send
constexpr std::int64_t ring_channels = 24;         // of a collective, each with one connection in its ring
constexpr std::int64_t transfer_channels = 32;     // to each rank of the node that a rank exchanges with
constexpr std::int64_t most_near = 7;              // ranks on the same node, besides this one
constexpr std::size_t network_buffer = 512 * mib;  // one for all ranks beyond

std::int64_t calls(const Traffic& traffic, Collective collective) {
  return traffic.calls[to_size(collective)];
}

// Peers that a rank exchanges data with: all of the group, or its neighbours in a pipeline.
std::int64_t peers(std::string_view group, const Traffic& traffic, std::int64_t size) {
  if (calls(traffic, Collective::all_to_all) > 0) return size - 1;
  if (calls(traffic, Collective::send) == 0) return 0;
  return group == name_of(Group::pp) ? std::min<std::int64_t>(2, size - 1) : size - 1;
}

bool has_rings(const Traffic& traffic) {
  return calls(traffic, Collective::all_reduce) + calls(traffic, Collective::all_gather) +
             calls(traffic, Collective::reduce_scatter) + calls(traffic, Collective::broadcast) >
         0;
}

}  // namespace

Allowance context_allowance() {
  return {"CUDA context", 512 * mib, "as nvidia-smi shows it of programs that have done nothing"};
}

Allowance process_allowance() {
  return {"process and MPI", 40 * mib, "program and libraries; MPI's buffers and threads after the first messages"};
}

std::vector<Allowance> library_allowances(const std::vector<std::pair<std::string, Traffic>>& traffic,
                                          const GroupSizes& sizes) {
  std::vector<Allowance> list{{"kernels", 256 * mib, "of forge, cuBLASLt and NCCL, loaded at their first use"}};
  for (std::size_t g = 0; g < traffic.size(); ++g) {
    const auto& [name, sent] = traffic[g];
    if (sizes[g] <= 1 || sent.total_calls() == 0) continue;
    const std::int64_t others = peers(name, sent, sizes[g]), near = std::min(others, most_near);
    const std::int64_t connections = (has_rings(sent) ? ring_channels : 0) + near * transfer_channels;
    const std::size_t network = others > near ? network_buffer : 0;
    list.push_back({"NCCL " + name, to_size(connections) * connection + network,
                    std::to_string(connections) + " connections of " + format_bytes(connection) +
                        (network > 0 ? " and " + format_bytes(network) + " for other nodes" : "")});
  }
  return list;
}

std::size_t total(const std::vector<Allowance>& allowances) {
  std::size_t sum = 0;
  for (const Allowance& a : allowances) sum += a.bytes;
  return sum;
}

}  // namespace forge
