#include "nn/dispatch.plan.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "core/balanced_rows.hpp"
#include "core/to_size.hpp"

namespace forge {

MoeShape moe_shape(const BufferContext& c) {
  const ModelDeck& o = c.spec.options;
  MoeShape m;
  m.rows = c.stream_rows();
  m.chosen = o.experts_per_token;
  m.experts = o.experts;
  m.experts_here = o.experts / c.ep;
  m.ffn = o.expert_ffn;
  m.sources = c.ep * c.etp;
  const std::int64_t tokens = c.microbatch.sequence_tokens;
  if (o.capacity_factor > 0)
    m.capacity = std::min(balanced_rows(o.capacity_factor, tokens * m.chosen, m.experts), tokens);
  m.gathers = o.dispatch == DispatchMethod::all_gather && m.exchanges();
  // Without other sources the number of rows follows from the choices' shape, and products in one launch find on the
  // device where each expert's begin. Rows of no expert have no numbers, of which rounding could take the largest.
  const bool rounds_rows_of_no_expert = m.capacity > 0 && c.rounding.on && c.rounding.experts;
  m.reads_counts = m.exchanges() || !c.grouped || rounds_rows_of_no_expert;
  m.nodes = m.exchanges() ? c.ep_nodes : 1;
  m.node_chosen = std::min(m.chosen, m.node_experts());
  m.places = m.two_level() ? m.most_records() * m.node_chosen : m.rows * m.chosen * (m.gathers ? m.sources : 1);
  const std::int64_t most = m.sources * m.rows * std::min(m.chosen, m.experts_here);
  m.round_rows = std::min(balanced_rows(o.dispatch_rows, c.etp * m.rows * m.chosen, 1), most);
  return m;
}

std::int64_t most_own_assignments(const BufferContext& c) {
  const MoeShape m = moe_shape(c);
  const std::int64_t all = m.rows * m.chosen;
  return m.capacity > 0 ? std::min(all, c.microbatch.sequences * m.experts * m.capacity) : all;
}

namespace {

// By the router's load of this rank.
std::int64_t loaded_rows(const BufferContext& c, const MoeShape& m) {
  const std::int64_t balanced = m.sources * m.rows * m.chosen * m.experts_here / m.experts;
  const std::int64_t most = m.sources * m.rows * std::min(m.chosen, m.experts_here);
  const auto loaded =
      std::min(static_cast<std::int64_t>(std::llround(static_cast<double>(balanced) * c.expert_load)), most);
  if (m.capacity == 0) return loaded;
  // A sequence leaves an expert at most `capacity` of its tokens.
  const std::int64_t tokens = c.microbatch.sequence_tokens * m.chosen;
  return std::min(loaded, balanced * std::min(m.capacity * m.experts, tokens) / tokens);
}

}  // namespace

std::int64_t expected_expert_rows(const BufferContext& c) {
  const MoeShape m = moe_shape(c);
  return m.reads_counts ? loaded_rows(c, m) : most_own_assignments(c);
}

bool gives_filler_away(const BufferContext& c, bool rounds) {
  const MoeShape m = moe_shape(c);
  return rounds && c.rounding.experts && !m.reads_counts && !m.exchanges() && m.capacity == 0;
}

namespace {

// Nodes of those that forced_balance gives a row at position p (balanced_experts in kernels/experts/router_rows.cpp).
std::int64_t nodes_of_position(const ModelDeck& o, std::int64_t node_experts, std::int64_t p) {
  const bool limited = o.router_groups_used > 0 && o.router_groups_used < o.router_groups;
  const std::int64_t groups = limited ? o.router_groups : 1, used = limited ? o.router_groups_used : 1,
                     size = o.experts / groups, of_group = (o.experts_per_token + used - 1) / used;
  std::set<std::int64_t> nodes;
  for (std::int64_t c = 0; c < o.experts_per_token; ++c) {
    const std::int64_t group = (p / size + c % used * groups / used) % groups;
    nodes.insert((group * size + (p % size + c / used * size / of_group) % size) / node_experts);
  }
  return static_cast<std::int64_t>(nodes.size());
}

// The chance that none of k experts, of the router's groups in use, is among those from `first` on. By the number of
// experts that the groups drawn so far have there.
double chance_of_none(const ModelDeck& o, std::int64_t first, std::int64_t count) {
  const std::int64_t groups = o.router_groups, size = o.experts / groups,
                     used = o.router_groups_used > 0 ? o.router_groups_used : groups;
  // ways[n][s]: to draw n of the groups so far with s of those experts.
  std::vector<std::vector<double>> ways(to_size(used + 1), std::vector<double>(to_size(count + 1)));
  ways[0][0] = 1;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t begin = std::max(first, g * size), end = std::min(first + count, (g + 1) * size),
                       there = std::max<std::int64_t>(end - begin, 0);
    for (std::int64_t n = std::min(g + 1, used); n > 0; --n)
      for (std::int64_t s = count; s >= there; --s)
        ways[to_size(n)][to_size(s)] += ways[to_size(n - 1)][to_size(s - there)];
  }
  double all = 0, none = 0;
  for (std::int64_t s = 0; s <= count; ++s) {
    double chance = 1;  // C(used · size − s, k) / C(used · size, k)
    for (std::int64_t i = 0; i < o.experts_per_token; ++i)
      chance *=
          static_cast<double>(std::max<std::int64_t>(used * size - s - i, 0)) / static_cast<double>(used * size - i);
    all += ways[to_size(used)][to_size(s)];
    none += ways[to_size(used)][to_size(s)] * chance;
  }
  return none / all;
}

}  // namespace

double expected_nodes(const ModelDeck& o, std::int64_t nodes) {
  const std::int64_t here = o.experts / nodes;
  double sum = 0;
  if (o.forced_balance) {
    for (std::int64_t p = 0; p < o.experts; ++p) sum += static_cast<double>(nodes_of_position(o, here, p));
    return sum / static_cast<double>(o.experts);
  }
  // Nodes with whole groups of the router, or parts of one, are alike.
  const std::int64_t size = o.experts / std::max<std::int64_t>(o.router_groups, 1);
  const bool alike = here % size == 0 || size % here == 0;
  double none = 0;
  for (std::int64_t node = 0; node < nodes; ++node) {
    if (node == 0 || !alike) none = chance_of_none(o, node * here, here);
    sum += 1 - none;
  }
  return sum;
}

std::int64_t expected_rounds(const BufferContext& c) {
  const std::int64_t rows = expected_expert_rows(c), round = moe_shape(c).round_rows;
  return std::max<std::int64_t>((rows + round - 1) / round, 1);
}

namespace {

// Rows of all sources, `columns` wide; weights are 1 wide, and have one for each choice.
void gather_of_group(Segments& list, std::int64_t columns, DType type) {
  list.send(Group::etp, Collective::all_gather, list.S * columns, type);
  list.send(Group::ep, Collective::all_gather, list.c.etp * list.S * columns, type);
}
void reduce_of_group(Segments& list, std::int64_t columns, DType type) {
  list.send(Group::ep, Collective::reduce_scatter, list.c.etp * list.S * columns, type);
  list.send(Group::etp, Collective::reduce_scatter, list.S * columns, type);
}

// Assignments between a rank and each of a group's, which have so many parts of them: rows, and perhaps weights, in one
// call.
void exchange(Segments& list, Group group, int parts, std::int64_t columns, DType type, bool weights) {
  const std::int64_t places = moe_shape(list.c).places, size = static_cast<std::int64_t>(size_of(type)),
                     sum = static_cast<std::int64_t>(size_of(list.c.precision.accumulate));
  const std::int64_t bytes = places * columns / parts * size + (weights ? places / parts * sum : 0);
  list.send(group, Collective::all_to_all, bytes, DType::u8);
}
// Sums of a round's rows over etp, one other rank after the other.
void add_of_etp(Segments& list, std::int64_t columns, DType type) {
  const std::int64_t rows = expected_expert_rows(list.c) / list.c.etp, bytes = static_cast<std::int64_t>(size_of(type));
  for (int peer = 1; peer < list.c.etp; ++peer) {
    list.send(Group::etp, Collective::send, moe_shape(list.c).places * columns, type);
    list.add(RowKernel{"add", rows, columns, 2 * rows * columns * bytes, rows * columns * bytes});
  }
}

// ---- two hops

std::int64_t expected_records(const Segments& list) {
  const MoeShape m = moe_shape(list.c);
  return std::llround(static_cast<double>(m.rows) * expected_nodes(list.spec.options, m.nodes));
}
// A record of the row, as so many bytes, and its entries, each of so many.
void exchange_records(Segments& list, std::int64_t row_bytes, std::int64_t entry_bytes) {
  const MoeShape m = moe_shape(list.c);
  const std::int64_t records = expected_records(list);
  list.send(Group::ep_rail, Collective::all_to_all, records * (row_bytes + m.node_chosen * entry_bytes) / m.nodes,
            DType::u8);
}
void exchange_in_node(Segments& list, std::int64_t row_bytes, std::int64_t entry_bytes) {
  const MoeShape m = moe_shape(list.c);
  list.send(Group::ep_node, Collective::all_to_all, m.rows * m.chosen * (row_bytes + entry_bytes) / m.node_ranks(),
            DType::u8);
}

void sort_records(Segments& list) {
  const MoeShape m = moe_shape(list.c);
  list.over_indices("node_choices", m.rows, m.chosen, m.nodes);
  list_moe_sort(list, m.staged_rows());
  list.over_indices("record_entries", m.rows, m.chosen + m.nodes, m.chosen);
  list.send(Group::ep, Collective::all_gather, m.experts + m.nodes, DType::i64);
  list.over_indices("node_counts", m.node_ranks() * m.node_experts(), 0, 2);
}

void records_out(Segments& list, const ScaledOperand* codes, bool weights) {
  const MoeShape m = moe_shape(list.c);
  const auto size = [](DType type) { return static_cast<std::int64_t>(size_of(type)); };
  const std::int64_t C = list.spec.C(), rows = expected_expert_rows(list.c), records = expected_records(list),
                     entries = records * m.node_chosen, sent = m.rows * m.chosen,
                     numbers = C * size(list.c.precision.compute), sum = size(list.c.precision.accumulate),
                     bytes = codes ? coded_row_bytes(*codes) : numbers;
  list.aside = list.spec.Fs() > 0;
  if (codes)
    list.add(RowKernel{rounding_kernels::encode_rows, records, C, records * numbers, records * bytes});
  else
    list.move_rows("permute_rows", C, records, records);
  if (weights) list.over_rows("permute_weights", entries, 1, 0, 0, 1, 1);
  exchange_records(list, bytes, weights ? sum + 4 : 0);
  if (weights) list_moe_sort(list, entries);
  list.add(RowKernel{codes ? "permute_codes" : "permute_rows", sent, C, sent * bytes, sent * bytes});
  if (weights) list.over_rows("permute_weights", sent, 1, 0, 0, 1, 1);
  exchange_in_node(list, bytes, weights ? sum : 0);
  list.over_indices("received_order", rows, 0, 2, 2);
  if (codes)
    list.add(RowKernel{rounding_kernels::decode_rows, rows, C, rows * bytes, rows * numbers});
  else
    list.move_rows("permute_rows", C, rows, rows);
  if (weights) list.over_rows("permute_rows", rows, 1, 0, 0, 1, 1);
  list.aside = false;
}

void records_back(Segments& list, bool adds, bool weights) {
  const MoeShape m = moe_shape(list.c);
  const auto size = [](DType type) { return static_cast<std::int64_t>(size_of(type)); };
  const std::int64_t C = list.spec.C(), rows = expected_expert_rows(list.c), records = expected_records(list),
                     sent = m.rows * m.chosen, value = size(list.c.precision.compute),
                     sum = size(list.c.precision.accumulate);
  list.move_rows("unpermute_rows", C, rows, rows);
  if (weights) list.over_rows("unpermute_rows", rows, 1, 0, 0, 1, 1);
  exchange_in_node(list, C * value, weights ? sum : 0);
  list.add(RowKernel{"sum_entries", records, C, sent * C * value, records * C * sum});
  if (value != sum) list.add(RowKernel{"convert_rows", records, C, records * C * sum, records * C * value});
  if (weights) list.over_rows("unpermute_weights", records * m.node_chosen, 1, 0, 0, 1, 1);
  exchange_records(list, C * value, weights ? sum : 0);
  list.move_rows("unpermute_rows", C, records + (adds ? m.rows : 0), m.rows);
  if (weights) list.add(RowKernel{"unpermute_weights", sent, 1, records * m.node_chosen * sum, sent * sum});
}

}  // namespace

// Kernels: counts of chunks, their sums by expert, the experts' offsets, places.
void list_moe_sort(Segments& list, std::int64_t assignments) {
  list.over_indices("moe_sort", assignments, 2, 2, 4);
}

void list_sort(Segments& list) {
  const MoeShape m = moe_shape(list.c);
  // Of all assignments, before any are dropped, for the load.
  if (m.capacity > 0 && !list.recomputes) list_moe_sort(list, m.rows * m.chosen);
  if (m.capacity > 0 && !list.recomputes) list.over_indices("add_counts", m.experts, 4, 2);
  if (m.gathers) gather_of_group(list, m.chosen, DType::i32);
  list_moe_sort(list, m.two_level() ? m.rows * m.chosen : m.places);
  if (m.capacity == 0 && !list.recomputes) list.over_indices("add_counts", m.experts, 4, 2);
  if (gives_filler_away(list.c, list.rounds)) list.over_indices("fill_counts", 1, 0, 2);
  if (m.two_level()) sort_records(list);
  list.count_reads += m.reads_counts;
  if (m.gathers || m.two_level()) return;
  list.send(Group::etp, Collective::all_gather, m.experts, DType::i64);
  list.send(Group::ep, Collective::all_gather, list.c.etp * m.experts, DType::i64);
}

void list_rows_out(Segments& list, const ScaledOperand* codes, bool weights) {
  const MoeShape m = moe_shape(list.c);
  if (m.two_level()) return records_out(list, codes, weights);
  const DType value = list.c.precision.compute, sum = list.c.precision.accumulate;
  const bool exchanges = m.exchanges() && !m.gathers;
  const std::int64_t C = list.spec.C(), rows = expected_expert_rows(list.c), sent = m.gathers ? m.rows : m.places,
                     numbers = C * static_cast<std::int64_t>(size_of(value)),
                     bytes = codes ? coded_row_bytes(*codes) : 0;
  if (exchanges) list.over_indices("received_order", rows, 0, 2, 2);  // begins of blocks, then places
  list.aside = m.exchanges() && list.spec.Fs() > 0;                   // the shared experts compute meanwhile
  if (codes)
    list.add(RowKernel{rounding_kernels::encode_rows, sent, C, sent * numbers, sent * bytes});
  else if (exchanges)
    list.move_rows("permute_rows", C, m.places, m.places);
  if (exchanges) {
    if (weights) list.over_rows("permute_weights", m.places, 1, 0, 0, 1, 1);
    for (const auto& [group, parts] : {std::pair{Group::ep, list.c.ep}, {Group::etp, 1}})
      exchange(list, group, parts, codes ? bytes : C, codes ? DType::u8 : value, weights);
  } else if (m.gathers) {
    codes ? gather_of_group(list, bytes, DType::u8) : gather_of_group(list, C, value);
  }
  if (codes)
    list.add(RowKernel{rounding_kernels::decode_rows, rows, C, rows * bytes, rows * numbers});
  else
    list.move_rows("permute_rows", C, rows, rows);
  if (weights && m.gathers) gather_of_group(list, m.chosen, sum);
  if (weights) list.over_rows(exchanges ? "permute_rows" : "permute_weights", rows, 1, 0, 0, 1, 1);
  list.aside = false;
}

void list_rows_back(Segments& list, bool adds, bool weights) {
  const MoeShape m = moe_shape(list.c);
  if (m.two_level()) return records_back(list, adds, weights);
  const DType value = list.c.precision.compute, sum = list.c.precision.accumulate;
  const std::int64_t C = list.spec.C(), rows = expected_expert_rows(list.c);
  if (m.exchanges()) list.move_rows("unpermute_rows", C, rows, m.gathers ? m.sources * m.rows : rows);
  if (m.gathers) {
    reduce_of_group(list, C, value);
    if (adds) list.over_rows("add", m.rows, C, 2, 1);
  } else {
    add_of_etp(list, C, value);
    if (weights) list.over_rows(m.exchanges() ? "unpermute_rows" : "copy_rows", rows, 1, 0, 0, 1, 1);
    if (weights) add_of_etp(list, 1, sum);
    exchange(list, Group::ep, list.c.ep, C, value, weights);
    list.move_rows("unpermute_rows", C, m.places + (adds ? m.rows : 0), m.rows);
  }
  if (!weights) return;
  list.over_rows("unpermute_weights", m.places, 1, 0, 0, 1, 1);
  if (m.gathers) reduce_of_group(list, m.chosen, sum);
}

}  // namespace forge
