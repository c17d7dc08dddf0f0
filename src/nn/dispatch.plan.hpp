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
  bool gathers = false;      // all rows of the sources go to each of them, and their assignments stand in one order
  bool reads_counts = true;  // a forward pass waits until the host has read how many rows each expert gets

  bool exchanges() const { return sources > 1; }
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
// Rounds in which they come.
std::int64_t expected_rounds(const BufferContext&);

// The order of assignments, from forward until B.
template <class T>
struct DispatchBuffers {
  View<std::int32_t, 1> order;    // (P) assignments by expert
  View<std::int32_t, 2> place;    // (S, k) their places; of all sources where rows are gathered
  View<std::int64_t, 1> offsets;  // (E + 1) of assignments in one order: of all sources where rows are gathered, of
                                  // this rank where its products look for them on the device
  View<std::int64_t, 2> counts;   // (sources, E), where each row goes to the ranks of its experts

  void list(BufferLister& l) {
    const MoeShape m = moe_shape(l.c);
    l.save(order, "assignments by expert", m.places, 1, l.B);
    l.save(place, "places of assignments", m.rows * (m.gathers ? m.sources : 1), m.chosen, l.B);
    if (m.gathers)
      l.save(offsets, "begins of experts", m.experts + 1, 1, l.B);
    else {
      if (l.c.grouped && !m.exchanges()) l.save(offsets, "begins of experts", m.experts + 1, 1, l.B);
      if (m.exchanges()) l.save(counts, "assignments of each source", m.sources, m.experts, l.B);
    }
  }
};

// Workspace of sorting them.
struct SortScratch {
  View<std::int64_t, 1> counts, offsets;  // (E), (E + 1) of this rank's rows, or of all sources'
  View<std::int32_t, 2> sort;             // workspace of moe_sort
  View<std::int32_t, 2> group_choices;    // (S sources, k) where rows are gathered

  void list(BufferLister& l) {
    const MoeShape m = moe_shape(l.c);
    const std::int64_t sorted = m.rows * (m.gathers ? m.sources : 1);
    l.add(counts, "assignments of each expert", m.experts, 1);
    l.add(offsets, "their begins", m.experts + 1, 1);
    l.add(sort, "order of assignments", moe_sort_rows(sorted * m.chosen), m.experts);
    if (m.gathers) l.add(group_choices, "choices of all sources", sorted, m.chosen);
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
    l.add(assignments, "rows of assignments", m.places, C);
    l.add(weights, "weights of assignments", m.places, 1);
    if (!m.exchanges()) return;
    l.add(received, "rows as received", N, C);
    l.add(received_line, "weights as received", N, 1);
    l.add(blocks, "begins of each expert and source", m.sources * m.experts_here + 1, 1);
    l.add(order, "received rows by expert", N, 1);
    l.add(place, "places of received rows", N, 1);
    l.add(offsets, "begins of received experts", m.experts_here + 1, 1);
    if (l.c.etp == 1) return;
    l.add(peer_rows, "rows from an etp rank", N, C);
    l.add(peer_line, "weights from an etp rank", N, 1);
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
