#pragma once

#include "nn/rows.plan.hpp"

namespace forge {

// The pure half of nn/dispatch.hpp.

// Sizes of a layer with experts on one rank. Each rank routes the S rows of its residual stream; an assignment is (row,
// choice); assignments go to the ranks that have their experts in rounds of bounded size, so that memory doesn't depend
// on what the router does.
struct MoeShape {
  std::int64_t rows = 0;          // S
  std::int64_t chosen = 0;        // k
  std::int64_t experts = 0;       // E
  std::int64_t experts_here = 0;  // E / ep
  std::int64_t ffn = 0;           // Fe / etp
  std::int64_t capacity = 0;      // the most assignments of an expert in a sequence, which filler lowers; 0: all
  std::int64_t places = 0;        // P, of this rank's assignments in the order of experts
  std::int64_t round_rows = 0;    // N, rows that a rank takes in a round
  int sources = 1;                // ranks that share the layer's experts: ep · etp
  int nodes = 1;                  // over which rows go in two hops, once a node; 1: in one hop
  std::int64_t node_chosen = 0;   // most of a row's experts on a node: entries of a record
  bool gathers = false;      // all rows of the sources go to each of them, and their assignments stand in one order
  bool reads_counts = true;  // a forward pass waits until the host has read how many rows each expert gets

  bool exchanges() const { return sources > 1; }
  // In two hops: a record is (row, node), with an entry for each of the row's experts there. It goes to the rank of the
  // same place on that node, which stages the records of all nodes, and sends an assignment for each entry.
  bool two_level() const { return nodes > 1; }
  int node_ranks() const { return sources / nodes; }
  std::int64_t node_experts() const { return experts / nodes; }
  std::int64_t most_records() const { return rows * std::min<std::int64_t>(chosen, nodes); }
  std::int64_t staged_rows() const { return rows * nodes; }
  std::int64_t node_places() const { return staged_rows() * node_chosen; }
  // The most assignments that it sends in a round.
  std::int64_t node_sent() const { return std::min(node_places(), node_ranks() * round_rows); }
};
MoeShape moe_shape(const BufferContext&);
// The most assignments of its own rows that a rank keeps: all of them, or what capacities leave. Without other sources
// its experts' products go over so many rows where the host reads no counts; behind the last assignment those are of no
// expert.
std::int64_t most_own_assignments(const BufferContext&);
// Rows that this rank's experts get, of all sources together: where the host reads no counts always as many, else where
// the router loads all experts alike, or this rank's `expert_load` times as much, as far as rows and capacity allow.
std::int64_t expected_expert_rows(const BufferContext&);
// Whether filler's rows go to the last expert: where rounding takes the magnitudes of all rows, as many as there may
// be.
bool gives_filler_away(const BufferContext&, bool rounds);
// Nodes that have one of a row's k experts, in the mean: where the router balances, or as forced_balance deals them.
double expected_nodes(const ModelDeck& model, std::int64_t nodes);
// Rounds in which they come.
std::int64_t expected_rounds(const BufferContext&);

// The order of assignments, from forward until B.
template <class T>
struct DispatchBuffers {
  View<std::int32_t, 1> order;    // (P) assignments by expert
  View<std::int32_t, 2> place;    // (S, k) their places; of all sources where rows are gathered
  View<std::int64_t, 1> offsets;  // (E + 1) of assignments in one order: of all sources where rows are gathered, of
                                  // this rank where its products or biases look for them on the device
  View<std::int64_t, 2> counts;   // (sources, E), where each row goes to the ranks of its experts; in two hops
                                  // (node_ranks, E / nodes): assignments that each rank of this node sends inside it
  // In two hops `order` (P) has the assignment of each entry of the records, −1 for none, and `place` the entries.
  View<std::int32_t, 1> records;       // (S nodes) row · nodes + node of each record, by node
  View<std::int32_t, 2> record_place;  // (S, nodes) their places; −1: none
  View<std::int32_t, 1> node_order;    // (S nodes · entries) entries of staged records, by expert of this node
  View<std::int32_t, 2> node_place;    // (S nodes, entries) their places

  void list(BufferLister& l) {
    const MoeShape m = moe_shape(l.c);
    l.save(order, "assignments by expert", m.places, 1, l.B);
    l.save(place, "places of assignments", m.rows * (m.gathers ? m.sources : 1), m.chosen, l.B);
    if (m.gathers)
      l.save(offsets, "begins of experts", m.experts + 1, 1, l.B);
    else {
      if ((l.c.grouped || l.spec.options.expert_bias) && !m.exchanges())
        l.save(offsets, "begins of experts", m.experts + 1, 1, l.B);
      if (m.exchanges() && !m.two_level()) l.save(counts, "assignments of each source", m.sources, m.experts, l.B);
    }
    if (m.two_level()) list_two_level(l, m);
  }

 private:
  void list_two_level(BufferLister& l, const MoeShape& m) {
    l.save(counts, "assignments of each rank of the node", m.node_ranks(), m.node_experts(), l.B);
    l.save(records, "records by node", m.staged_rows(), 1, l.B);
    l.save(record_place, "places of records", m.rows, m.nodes, l.B);
    l.save(node_order, "entries by expert", m.node_places(), 1, l.B);
    l.save(node_place, "places of entries", m.staged_rows(), m.node_chosen, l.B);
  }
};

// Workspace of sorting them.
struct SortScratch {
  View<std::int64_t, 1> counts, offsets;  // (E), (E + 1) of this rank's rows, or of all sources'
  View<std::int32_t, 2> sort;             // workspace of moe_sort
  View<std::int32_t, 2> group_choices;    // (S sources, k) where rows are gathered
  // In two hops:
  View<std::int32_t, 2> row_nodes;                      // (S, nodes) those of a row's experts
  View<std::int32_t, 2> record_sort;                    // workspace of moe_sort
  View<std::int64_t, 1> record_counts, record_offsets;  // (nodes), (nodes + 1)
  View<std::int64_t, 2> all_counts;  // (sources, E + nodes) of each source, its assignments and its records

  void list(BufferLister& l) {
    const MoeShape m = moe_shape(l.c);
    const std::int64_t sorted = m.rows * (m.gathers ? m.sources : 1);
    l.add(counts, "assignments of each expert", m.experts, 1);
    l.add(offsets, "their begins", m.experts + 1, 1);
    l.add(sort, "order of assignments", moe_sort_rows(sorted * m.chosen), m.experts);
    if (m.gathers) l.add(group_choices, "choices of all sources", sorted, m.chosen);
    if (!m.two_level()) return;
    l.add(row_nodes, "nodes of rows", m.rows, m.nodes);
    l.add(record_sort, "order of records", moe_sort_rows(m.staged_rows()), m.nodes);
    l.add(record_counts, "records for each node", m.nodes, 1);
    l.add(record_offsets, "begins of records", m.nodes + 1, 1);
    l.add(all_counts, "counts of all sources", m.sources, m.experts + m.nodes);
  }
};

// Workspace of a pass in which rows travel.
template <class T>
struct DispatchScratch {
  using A = acc_t<T>;
  // Where rows are gathered: of all sources.
  View<T, 2> group_rows, group_sums;  // (S sources, C)
  View<A, 2> group_weights;           // (S sources, k)
  // Elsewhere: assignments on their way there or back; rows as they were received, by source and then by expert.
  View<T, 2> assignments;         // (P, C)
  View<A, 2> weights;             // (P, 1), of assignments either way
  View<T, 2> received;            // (N, C)
  View<A, 2> received_line;       // (N, 1)
  View<std::int64_t, 1> blocks;   // (E / ep sources + 1) workspace of received_order
  View<std::int32_t, 1> order;    // (N) to the order of experts …
  View<std::int32_t, 2> place;    // (N, 1) … and back
  View<std::int64_t, 1> offsets;  // (E / ep + 1)
  View<T, 2> peer_rows;           // (N, C) what another etp rank made of the same rows
  View<A, 2> peer_line;           // (N, 1)
  // In two hops, before those: records on their way there or back, and as they are staged; assignments of the staged
  // ones in a round, and the sums that go back.
  View<T, 2> records, staged;                            // (S min(k, nodes), C), (S nodes, C)
  View<std::int32_t, 2> record_experts, staged_experts;  // (…, entries)
  View<A, 2> staged_weights;                             // (S nodes, entries), or their gradients
  View<std::int32_t, 2> node_sort;                       // workspace of moe_sort
  View<std::int64_t, 1> node_counts, node_offsets;       // (E / nodes), (E / nodes + 1)
  View<T, 2> sent;                                       // (node_sent, C)
  View<A, 2> sent_weights;                               // (S nodes · entries, 1) at their places
  View<A, 2> sums;                                       // (S nodes, C)

  void list(BufferLister& l) {
    const MoeShape m = moe_shape(l.c);
    const std::int64_t C = l.spec.C(), N = m.round_rows;
    if (m.gathers) {
      const std::int64_t rows = m.rows * m.sources;
      l.add(group_rows, "rows of all sources", rows, C);
      l.add(group_sums, "sums for all sources", rows, C);
      l.add(group_weights, "weights of all sources", rows, m.chosen);
      l.add(weights, "weights of assignments", m.places, 1);
      return;
    }
    if (m.two_level())
      list_records(l, m);
    else
      l.add(assignments, "rows of assignments", m.places, C);
    l.add(weights, "weights of assignments", m.places, 1);
    if (!m.exchanges()) return;
    l.add(received, "rows as received", N, C);
    l.add(received_line, "weights as received", N, 1);
    l.add(blocks, "begins of each expert and source", m.sources / m.nodes * m.experts_here + 1, 1);
    l.add(order, "received rows by expert", N, 1);
    l.add(place, "places of received rows", N, 1);
    l.add(offsets, "begins of received experts", m.experts_here + 1, 1);
    if (l.c.etp == 1) return;
    l.add(peer_rows, "rows from an etp rank", N, C);
    l.add(peer_line, "weights from an etp rank", N, 1);
  }

 private:
  void list_records(BufferLister& l, const MoeShape& m) {
    const std::int64_t C = l.spec.C(), staged_rows = m.staged_rows(), entries = m.node_chosen;
    l.add(records, "rows of records", m.most_records(), C);
    l.add(record_experts, "experts of records", m.most_records(), entries);
    l.add(staged, "staged rows", staged_rows, C);
    l.add(staged_experts, "experts of staged rows", staged_rows, entries);
    l.add(staged_weights, "weights of staged rows", staged_rows, entries);
    l.add(node_sort, "order of entries", moe_sort_rows(m.node_places()), m.node_experts());
    l.add(node_counts, "entries of each expert", m.node_experts(), 1);
    l.add(node_offsets, "begins of entries", m.node_experts() + 1, 1);
    l.add(sent, "rows of entries", m.node_sent(), C);
    l.add(sent_weights, "weights of entries", m.node_places(), 1);
    l.add(sums, "sums of staged rows", staged_rows, C);
  }
};

// Bytes of a row that travels as codes, with its scales (rows_to_codes).
inline std::int64_t coded_row_bytes(const ScaledOperand& rows) {
  return rows.columns + rows.by_column.count * static_cast<std::int64_t>(sizeof(float));
}

// An order of so many assignments (moe_sort).
void list_moe_sort(Segments& list, std::int64_t assignments);
// Moments of a pass, where one round takes all rows: the order of this rank's assignments, their counts, and the host's
// wait for these; the order of rows as they will be received, and rows, as numbers or as codes, perhaps with weights on
// their way to experts; what experts made of the rows, perhaps with the gradients of the weights, on their way back.
void list_sort(Segments& list);
void list_rows_out(Segments& list, const ScaledOperand* codes, bool weights);
void list_rows_back(Segments& list, bool adds, bool weights);

}  // namespace forge
