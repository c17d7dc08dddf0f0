#pragma once

#include <string_view>
#include <vector>

#include "layout/boxes.hpp"
#include "layout/local_units.hpp"
#include "layout/mesh_shape.hpp"

namespace forge {

// Ranks that hold numbers alike, bit for bit, after every update, by the cause: data-parallel ranks have the same state
// of dense units or experts; also, with ZeRO 1 and 2, weights gathered from all shards; tp and etp ranks have the same
// replicated parameters; tp neighbours the same key and value heads; stages the same token table; replicas the same
// numbers of rows, columns and squares of matrices; all ranks the same biases of routers.
enum class ReplicaKind { data, expert_data, gathered, gathered_experts, tp, etp, copies, tables, matrices, routers };
inline constexpr int replica_kinds = 10;
std::string_view name_of(ReplicaKind kind);

// The group of a rank, as a number that its members share; negative: the rank is in none. `sharded`: ZeRO 1 to 3.
int replica_group(ReplicaKind kind, const MeshShape& mesh, const MeshGroups& groups, bool sharded, int rank);

// The parts of a unit's flat buffer that a rank holds like the others of its group; none for `matrices` and `routers`,
// which stand in no unit.
std::vector<Range> alike(ReplicaKind kind, const LocalUnit& unit);

}  // namespace forge
