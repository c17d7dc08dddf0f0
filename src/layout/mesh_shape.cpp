#include "layout/mesh_shape.hpp"

#include "core/bytes.hpp"
#include "core/to_size.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace forge {

namespace {

constexpr std::int64_t most_ranks = 1 << 24;

// Products of deck values stay comparable with any world, and never overflow.
std::int64_t product(std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (const std::int64_t factor : factors) result = std::min(result * std::min(factor, most_ranks), most_ranks);
  return result;
}

std::string text(std::int64_t value) {
  return std::to_string(value);
}

// Checks one deck's mesh and collects what is wrong.
class Resolver {
 public:
  Resolver(const MeshDeck& deck, std::int64_t world, Report& report, std::int64_t experts)
      : deck_(deck), world_(world), report_(report), experts_(experts) {}

  std::optional<MeshShape> run() {
    ranges();
    if (legal_) dense();
    if (legal_) expert();
    return legal_ ? std::optional(mesh_) : std::nullopt;
  }

 private:
  void add(const std::string& line) {
    report_.add("", line);
    legal_ = false;
  }

  void ranges() {
    const auto at_least_one = [&](const char* key, std::int64_t value, const char* also) {
      if (value < 1 || value > most_ranks)
        add(std::string("mesh.") + key + " must be at least 1" + also + ", but is " + text(value));
    };
    at_least_one("pp", deck_.pp, "");
    at_least_one("dp_replicate", deck_.dp_replicate, "");
    if (deck_.dp_shard != -1) at_least_one("dp_shard", deck_.dp_shard, ", or -1 (the rest)");
    at_least_one("cp", deck_.cp, "");
    at_least_one("tp", deck_.tp, "");
    at_least_one("ep", deck_.ep, "");
    if (deck_.etp != 0) at_least_one("etp", deck_.etp, ", or 0 (as tp)");
    if (world_ < 1 || world_ >= most_ranks) add("the number of ranks must be at least 1, but is " + text(world_));
  }

  void dense() {
    const std::int64_t rest = product({deck_.pp, deck_.dp_replicate, deck_.cp, deck_.tp});
    std::int64_t shard = deck_.dp_shard;
    if (shard == -1) {
      if (world_ % rest != 0) {
        const std::int64_t below = world_ / rest * rest;
        add("mesh.pp " + text(deck_.pp) + " * dp_replicate " + text(deck_.dp_replicate) + " * cp " + text(deck_.cp) +
            " * tp " + text(deck_.tp) + " = " + text(rest) + " does not divide the world of " + ranks(world_) +
            "; nearest legal numbers of ranks: " + (below > 0 ? text(below) + " or " : "") + text(below + rest) + ": " +
            launcher(below + rest));
        return;
      }
      shard = world_ / rest;
    } else if (product({rest, shard}) != world_ && deck_.ep > 1 && product({rest, shard, deck_.ep}) == world_) {
      shard *= deck_.ep;
    }
    const std::int64_t needed = product({rest, shard});
    if (needed != world_) {
      add("mesh.pp " + text(deck_.pp) + " * dp_replicate " + text(deck_.dp_replicate) + " * dp_shard " + text(shard) +
          " * cp " + text(deck_.cp) + " * tp " + text(deck_.tp) + " = " + text(needed) + ", but the world is " +
          ranks(world_) + "; " + launcher(needed) +
          (world_ % rest == 0 ? ", or set mesh.dp_shard to " + text(world_ / rest) + " or -1" : ""));
      return;
    }
    mesh_.pp = static_cast<int>(deck_.pp);
    mesh_.dp_replicate = static_cast<int>(deck_.dp_replicate);
    mesh_.dp_shard = static_cast<int>(shard);
    mesh_.cp = static_cast<int>(deck_.cp);
    mesh_.tp = static_cast<int>(deck_.tp);
  }

  static std::string ranks(std::int64_t n) { return text(n) + (n == 1 ? " rank" : " ranks"); }

  // srun -N, the number of nodes, starts one rank on each: the usual reason why there are fewer than the deck needs.
  static std::string launcher(std::int64_t wanted) {
    const std::string n = text(wanted);
    return "start " + ranks(wanted) + " with mpirun -n " + n + ", srun --ntasks=" + n +
           " (srun -N alone starts one a node), or without a launcher --ranks " + n;
  }

  bool fits(std::int64_t ep, std::int64_t etp, std::int64_t ranks) const {
    const std::int64_t local = ranks / mesh_.dp_replicate, experts = product({ep, etp});
    return ranks % experts == 0 && (local % experts == 0 || experts % local == 0);
  }

  bool divides_experts(std::int64_t ep) const { return experts_ % ep == 0; }

  // "" when ep and etp fit `ranks` of a stage, else the violated equation.
  std::string misfit(std::int64_t ep, std::int64_t etp, std::int64_t ranks) const {
    const std::int64_t local = ranks / mesh_.dp_replicate, experts = product({ep, etp});
    const std::string both = "ep " + text(ep) + " * etp " + text(etp) + " = " + text(experts);
    if (ranks % experts != 0)
      return both + " does not divide dp_replicate * dp_shard * cp * tp = " + text(ranks) +
             " (ep * etp * edp = dp_replicate * dp_shard * cp * tp)";
    if (local % experts != 0 && experts % local != 0)
      return both + " and dp_shard * cp * tp = " + text(local) + ": one must divide the other";
    return "";
  }

  void expert() {
    const std::int64_t etp = deck_.etp == 0 ? deck_.tp : deck_.etp;
    if (deck_.tp % etp != 0) {
      std::string legal;
      for (std::int64_t d = 1; d <= deck_.tp; ++d)
        if (deck_.tp % d == 0) legal += (legal.empty() ? "" : ", ") + text(d);
      return add("mesh.etp " + text(etp) + " must divide mesh.tp " + text(deck_.tp) + "; legal are " + legal);
    }
    const std::int64_t ranks = world_ / mesh_.pp;
    const std::string wrong = misfit(deck_.ep, etp, ranks);
    if (!wrong.empty()) return add("mesh.ep: " + wrong + "; legal are " + legal_experts(etp, ranks));
    mesh_.ep = static_cast<int>(deck_.ep);
    mesh_.etp = static_cast<int>(etp);
    mesh_.edp = static_cast<int>(ranks / (deck_.ep * etp));
  }

  // What would be legal instead: the nearest ep on this world, or the next number of ranks for this ep.
  std::string legal_experts(std::int64_t etp, std::int64_t ranks) const {
    std::string legal;
    for (std::int64_t ep = std::min(deck_.ep - 1, ranks); ep >= 1 && legal.empty(); --ep)
      if (divides_experts(ep) && fits(ep, etp, ranks)) legal = "mesh.ep " + text(ep);
    for (std::int64_t ep = deck_.ep + 1; ep <= ranks; ++ep)
      if (divides_experts(ep) && fits(ep, etp, ranks)) {
        legal += (legal.empty() ? "mesh.ep " : " or ") + text(ep);
        break;
      }
    const std::string only = (legal.empty() ? "for ep " : ", or for ep ") + text(deck_.ep) + " ";
    legal += only + text(ranks_with(etp, ranks)) + " ranks with mesh.etp " + text(etp);
    if (etp > 1) legal += ", " + text(ranks_with(1, ranks)) + " ranks with mesh.etp 1";
    return legal;
  }

  // The next number of ranks, from this world on, that the deck's ep fits with this etp.
  std::int64_t ranks_with(std::int64_t etp, std::int64_t ranks) const {
    const std::int64_t inner = product({mesh_.dp_replicate, mesh_.cp, mesh_.tp});
    std::int64_t candidate = (ranks + inner - 1) / inner * inner;
    while (candidate < 2 * most_ranks && !fits(deck_.ep, etp, candidate)) candidate += inner;
    return mesh_.pp * candidate;
  }

  const MeshDeck& deck_;
  std::int64_t world_;
  Report& report_;
  std::int64_t experts_;
  bool legal_ = true;
  MeshShape mesh_;
};

std::string list_of(const std::vector<int>& ranks) {
  std::string list;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks.size() > 8 && i == 4) list += " ...";
    if (ranks.size() > 8 && i >= 4 && i + 2 < ranks.size()) continue;
    list += (list.empty() ? "" : " ") + std::to_string(ranks[i]);
  }
  return list;
}

std::string table_line(const std::string& axis, const std::string& extent, const std::string& stride,
                       const std::string& ranks, const std::string& carries) {
  return formatted("  %-13s %6s %7s  %-28s %s\n", axis.c_str(), extent.c_str(), stride.c_str(), ranks.c_str(),
                   carries.c_str());
}

}  // namespace

int MeshShape::data_parallel_together() const {
  return std::lcm(cp * tp, ep * etp) / (cp * tp);
}

int MeshShape::expert_shards() const {
  return std::max(1, dp_shard * cp * tp / (ep * etp));
}

std::optional<MeshShape> resolve_mesh(const MeshDeck& deck, std::int64_t world, Report& report, std::int64_t experts) {
  return Resolver(deck, world, report, experts).run();
}

MeshShape resolve_mesh(const MeshDeck& deck, std::int64_t world) {
  Report report;
  const auto mesh = resolve_mesh(deck, world, report);
  report.throw_if_any("the mesh");
  return *mesh;
}

std::int64_t ranks_of(const MeshDeck& deck) {
  return product({deck.pp, deck.dp_replicate, std::max<std::int64_t>(deck.dp_shard, 1), deck.cp, deck.tp});
}

std::string mesh_table(const MeshShape& mesh, int rank) {
  const std::string title = "ranks of rank " + std::to_string(rank) + "'s group";
  std::string result = table_line("axis", "extent", "stride", title, "carries");
  struct Line {
    int axis;
    const char *name, *carries;
  };
  const auto lines = [&](const Grid& grid, std::initializer_list<Line> list) {
    for (const Line& line : list)
      result += table_line(line.name, std::to_string(grid.extent(line.axis)), std::to_string(grid.stride(line.axis)),
                           list_of(grid.group_of(rank, 1u << line.axis)), line.carries);
  };
  lines(mesh.dense(), {{0, "pp", "activations and their gradients between stages"},
                       {1, "dp_replicate", "sums of gradients"},
                       {2, "dp_shard", "parameters, sums of gradients; different data"},
                       {3, "cp", "keys and values; parameters, sums of gradients"},
                       {4, "tp", "activations within a layer"}});
  if (mesh.two_level_cp())
    lines(mesh.context(), {{1, "cp_outer", "of cp: keys and values"}, {2, "cp_inner", "of cp: heads of attention"}});
  if (mesh.ep > 1 || mesh.etp != mesh.tp)
    lines(mesh.expert(), {{0, "pp (experts)", "as above"},
                          {1, "edp", "expert parameters, sums of their gradients"},
                          {2, "ep", "tokens to their experts and back"},
                          {3, "etp", "activations within an expert"}});
  return result;
}

}  // namespace forge
