#include "layout/replicas.hpp"

#include <algorithm>
#include <iterator>

namespace forge {

namespace {

// The expert view with edp in its two parts.
enum class ExpertPart : int { pp, replicas, shards, ep, etp };
Grid expert_grid(const MeshShape& mesh) {
  return Grid({mesh.pp, mesh.expert_replicas(), mesh.expert_shards(), mesh.ep, mesh.etp});
}

bool is_table(const LocalUnit& unit) {
  return unit.kind == UnitKind::token_table;
}

}  // namespace

std::string_view name_of(ReplicaKind kind) {
  static constexpr std::string_view names[] = {"data-parallel ranks",
                                               "data-parallel ranks of the experts",
                                               "ranks that gather the weights",
                                               "ranks that gather the experts",
                                               "tp ranks",
                                               "etp ranks",
                                               "tp ranks with the same key and value heads",
                                               "pipeline stages with the token table",
                                               "replicas",
                                               "all ranks"};
  static_assert(std::size(names) == replica_kinds);
  return names[static_cast<int>(kind)];
}

int replica_group(ReplicaKind kind, const MeshShape& mesh, const MeshGroups& groups, bool sharded, int rank) {
  const Grid dense = mesh.dense();
  const auto dense_number = [&](AxisBits axes) { return dense.group_number(rank, axes); };
  const auto expert_number = [&](std::initializer_list<ExpertPart> axes) {
    return groups.experts ? expert_grid(mesh).group_number(rank, bits_of(axes)) : -1;
  };
  switch (kind) {
    case ReplicaKind::data:
      return dense_number(sharded ? bits_of({Axis::dp_replicate}) : gradient_axes);
    case ReplicaKind::expert_data:
      return sharded ? expert_number({ExpertPart::replicas})
                     : expert_number({ExpertPart::replicas, ExpertPart::shards});
    case ReplicaKind::gathered:
      return sharded ? dense_number(gradient_axes) : -1;
    case ReplicaKind::gathered_experts:
      return sharded ? expert_number({ExpertPart::replicas, ExpertPart::shards}) : -1;
    case ReplicaKind::tp:
      return dense_number(bits_of({Axis::tp}));
    case ReplicaKind::etp:
      return expert_number({ExpertPart::etp});
    case ReplicaKind::copies:
      return rank / groups.kv_copies;
    case ReplicaKind::tables: {
      const int stage = dense.coordinate(rank, static_cast<int>(Axis::pp));
      const auto& stages = groups.table_stages;
      const bool holds = std::find(stages.begin(), stages.end(), stage) != stages.end();
      return holds ? dense_number(bits_of({Axis::pp})) : -1;
    }
    case ReplicaKind::matrices: {
      // Where experts stand on several replicas of the dense units, ranks hold states of other experts.
      const int replica = dense_number(bits_of({Axis::dp_replicate}));
      const int experts = std::max(0, expert_number({ExpertPart::replicas}));
      return replica * (groups.experts ? dense.size() : 1) + experts;
    }
    case ReplicaKind::routers:
      return 0;
  }
  return -1;
}

std::vector<Range> alike(ReplicaKind kind, const LocalUnit& unit) {
  const Range state = unit.state();
  std::vector<Range> ranges;
  const auto hold = [&](bool where, const Range& range) {
    if (where) append(ranges, range);
  };
  switch (kind) {
    case ReplicaKind::data:
    case ReplicaKind::expert_data:
      hold(unit.is_experts() == (kind == ReplicaKind::expert_data), state);
      break;
    case ReplicaKind::gathered:
    case ReplicaKind::gathered_experts:
      hold(unit.is_experts() == (kind == ReplicaKind::gathered_experts) && unit.zero.gathers(), {0, unit.elements});
      break;
    case ReplicaKind::tp:
    case ReplicaKind::etp:
      hold(unit.is_experts() == (kind == ReplicaKind::etp),
           intersection({unit.replicated_begin, unit.replicated_end}, state));
      break;
    case ReplicaKind::copies:
      for (const Range& part : unit.copied) append(ranges, intersection(part, state));
      break;
    case ReplicaKind::tables:
      hold(is_table(unit), state);
      break;
    case ReplicaKind::matrices:
    case ReplicaKind::routers:
      break;
  }
  return ranges;
}

}  // namespace forge
