#include "app/show_parts.hpp"

#include <cmath>

#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "layout/expert_nodes.hpp"
#include "nn/moe.plan.hpp"
#include "nn/units.plan.hpp"

namespace forge {

namespace {

std::string number(std::int64_t n) {
  return std::to_string(n);
}

std::string bytes(std::int64_t n) {
  return format_bytes(to_size(n));
}

std::string view(const MeshShape& mesh) {
  const Grid grid = mesh.expert();
  std::string text = "pp " + number(mesh.pp) + " x edp " + number(mesh.edp) + " x ep " + number(mesh.ep) + " x etp " +
                     number(mesh.etp) + ", strides";
  for (int axis = 0; axis < grid.axes(); ++axis) text += " " + number(grid.stride(axis));
  return text;
}

// Where ZeRO cuts states, the experts' are cut over a part of edp and copied over the rest.
int state_shards(const RunSetup& s) {
  return s.deck.train.zero_stage > 0 ? s.mesh.expert_shards() : 1;
}
std::string states(const RunSetup& s) {
  const int shards = state_shards(s), copies = s.mesh.edp / shards;
  return (shards > 1 ? "cut over " + number(shards) + " ranks of edp" : "whole on a rank") + ", " +
         (copies > 1 ? number(copies) + " copies" : "one copy");
}

std::vector<std::int64_t> layers_with_experts(const ModelSpec& spec) {
  std::vector<std::int64_t> with;
  for (std::int64_t layer = 0; layer < spec.L(); ++layer)
    if (spec.is_moe(layer)) with.push_back(layer);
  return with;
}
std::string layers(const ModelSpec& spec) {
  const std::vector<std::int64_t> with = layers_with_experts(spec);
  return number(spec.moe_layers()) + " of " + number(spec.L()) + (with.empty() ? "" : ": " + ranges_text(with));
}

std::string used(const ModelSpec& spec) {
  std::string text = counted(spec.experts_per_token(), "expert") + " of " + counted(spec.Fe(), "column");
  if (spec.options.router_groups > spec.options.router_groups_used)
    text += ", in " + number(spec.options.router_groups_used) + " of " + number(spec.options.router_groups) + " groups";
  if (spec.Fs() > 0) text += ", and " + counted(spec.Fs(), "column") + " that all tokens share";
  return text;
}

std::int64_t expert_parameters(const RunSetup& s) {
  std::int64_t experts = 0;
  for (const Unit& unit : s.units)
    if (unit.kind == UnitKind::experts) experts += parameter_count({unit});
  return experts;
}
std::string parameters(const RunSetup& s) {
  return format_count(static_cast<double>(parameter_count(s.units))) + ", of them " +
         format_count(static_cast<double>(expert_parameters(s))) + " of experts; " +
         format_count(static_cast<double>(active_parameter_count(s.spec))) +
         " at work for a token (without the look-up in the embedding)";
}

std::string capacity(const RunSetup& s, const MoeShape& m) {
  return counted(m.capacity, "row") + " of a sequence at most (factor " + format_exact(s.spec.options.capacity_factor) +
         ")";
}

// A row of numbers.
std::int64_t row_bytes(const RunSetup& s) {
  return s.spec.C() * static_cast<std::int64_t>(size_of(s.buffers.precision.compute));
}

std::int64_t balanced_rows(const RunSetup& s, const MoeShape& m) {
  return m.rows * m.chosen * s.mesh.etp;
}
std::string round(const RunSetup& s, const MoeShape& m) {
  const std::string rows = counted(m.round_rows, "row") + ", " + bytes(m.round_rows * row_bytes(s));
  return rows + " at most; " + number(balanced_rows(s, m)) + " where the router balances: " + counted(m.rows, "row") +
         " x " + number(m.chosen) + (s.mesh.etp > 1 ? " x etp" : "");
}

// What a rank sends to the others of its group, one way: rows of assignments, or with all_gather all of its rows. What
// goes to experts in rounded blocks may be codes.
struct SentBytes {
  std::int64_t over_ep, over_etp;
};
// In two hops: to other nodes, a record for each node of a row, and inside the node, a row for each expert.
struct HopBytes {
  std::int64_t between_nodes, inside;
};
HopBytes hop_bytes(const RunSetup& s, const MoeShape& m, std::int64_t row) {
  const double records = static_cast<double>(m.rows) * expected_nodes(s.spec.options, m.nodes);
  return {std::llround(records / m.nodes * (m.nodes - 1) * static_cast<double>(row)),
          m.rows * m.chosen / m.node_ranks() * (m.node_ranks() - 1) * row};
}
SentBytes sent_bytes(const RunSetup& s, const MoeShape& m, std::int64_t row) {
  if (m.two_level()) {
    const HopBytes hops = hop_bytes(s, m, row);
    return {hops.between_nodes + hops.inside, 0};
  }
  const std::int64_t ep = s.mesh.ep, etp = s.mesh.etp;
  const std::int64_t over_ep = m.gathers ? m.rows * etp * row : m.places / ep * row;
  return {over_ep * (ep - 1), (m.gathers ? m.rows : m.places) * row * (etp - 1)};
}
// A row on its way there.
std::int64_t row_bytes_there(const RunSetup& s, const MoeShape& m) {
  if (!s.buffers.rounding.dispatch) return row_bytes(s);
  return coded_row_bytes(rows_to_experts(s.buffers, ProductOf::output, m.rows));
}
std::string sent_in_two_hops(const RunSetup& s, const MoeShape& m) {
  const auto line = [&](std::int64_t row) {
    const HopBytes hops = hop_bytes(s, m, row);
    return bytes(hops.between_nodes) + " between nodes, " + bytes(hops.inside) + " inside";
  };
  const std::string numbers = line(row_bytes(s));
  if (!s.buffers.rounding.dispatch) return numbers + ", each way, where the router balances";
  return line(row_bytes_there(s, m)) + " there as codes; " + numbers + " back, where the router balances";
}
std::string hops(const RunSetup& s, const MoeShape& m) {
  if (m.two_level())
    return "two, once to each node of a row: ep lies on " + number(m.nodes) + " nodes of " + number(m.node_ranks()) +
           " ranks";
  return "one: " + expert_nodes(s.mesh, s.deck.mesh.node_ranks).rule;
}

std::string sent(const RunSetup& s, const MoeShape& m) {
  if (m.two_level()) return sent_in_two_hops(s, m);
  const auto line = [&](std::int64_t row) {
    const SentBytes sent = sent_bytes(s, m, row);
    return bytes(sent.over_ep) + " over ep, " + bytes(sent.over_etp) + " over etp";
  };
  const std::string numbers = line(row_bytes(s));
  const std::string where = m.gathers ? "" : ", where the router balances";
  if (!s.buffers.rounding.dispatch) return numbers + ", each way" + where;
  return line(row_bytes_there(s, m)) + " there as codes; " + numbers + " back" + where;
}

}  // namespace

std::string ranges_text(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> pieces;
  for (std::size_t begin = 0; begin < numbers.size();) {
    std::size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    pieces.push_back(number(numbers[begin]) + (end - begin > 1 ? " to " + number(numbers[end - 1]) : ""));
    begin = end;
  }
  std::string text;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces.size() > 5 && i == 3) text += ", …";
    if (pieces.size() > 5 && i >= 3 && i + 1 < pieces.size()) continue;
    text += (i ? ", " : "") + pieces[i];
  }
  return text;
}

std::string expert_text(const RunSetup& s) {
  if (s.spec.E() == 0) return "";
  const MoeShape m = moe_shape(s.buffers);
  std::string text = "experts\n";
  const auto add = [&](const char* name, const std::string& value) {
    text += formatted("  %-16s ", name) + value + "\n";
  };
  add("view", view(s.mesh));
  add("states", states(s));
  add("layers", layers(s.spec));
  add("a rank has", number(m.experts_here) + " of " + number(m.experts) + ", " +
                        (s.mesh.etp == 1 ? "whole" : "1/" + number(s.mesh.etp) + " of each"));
  add("a token uses", used(s.spec));
  add("parameters", parameters(s));
  if (m.capacity > 0) add("an expert takes", capacity(s, m));
  add("a round takes", round(s, m));
  add("and sends", sent(s, m));
  if (s.deck.model.dispatch == DispatchMethod::automatic || m.two_level()) add("hops", hops(s, m));
  return text + "\n";
}

JsonLine expert_json(const RunSetup& s) {
  JsonLine all;
  if (s.spec.E() == 0) return all;
  const MoeShape m = moe_shape(s.buffers);
  const SentBytes there = sent_bytes(s, m, row_bytes_there(s, m)), back = sent_bytes(s, m, row_bytes(s));
  all.add("state_shards", state_shards(s)).add("layers", layers_with_experts(s.spec));
  all.add("experts", m.experts).add("experts_here", m.experts_here).add("parameters", expert_parameters(s));
  all.add("capacity_rows", m.capacity).add("round_rows", m.round_rows).add("balanced_rows", balanced_rows(s, m));
  all.add("round_bytes", m.round_rows * row_bytes(s));
  all.add("sent_there_ep_bytes", there.over_ep).add("sent_there_etp_bytes", there.over_etp);
  return all.add("sent_back_ep_bytes", back.over_ep).add("sent_back_etp_bytes", back.over_etp);
}

}  // namespace forge
