#include "nn/dispatch.plan.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/balanced_rows.hpp"

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
  m.places = m.rows * m.chosen * (m.gathers ? m.sources : 1);
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
  list_moe_sort(list, m.places);
  if (m.capacity == 0 && !list.recomputes) list.over_indices("add_counts", m.experts, 4, 2);
  if (gives_filler_away(list.c, list.rounds)) list.over_indices("fill_counts", 1, 0, 2);
  list.count_reads += m.reads_counts;
  if (m.gathers) return;
  list.send(Group::etp, Collective::all_gather, m.experts, DType::i64);
  list.send(Group::ep, Collective::all_gather, list.c.etp * m.experts, DType::i64);
}

void list_rows_out(Segments& list, const ScaledOperand* codes, bool weights) {
  const MoeShape m = moe_shape(list.c);
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
