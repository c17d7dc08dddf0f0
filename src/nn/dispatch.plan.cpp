#include "nn/dispatch.plan.hpp"

#include <algorithm>
#include <cmath>

#include "core/balanced_rows.hpp"

namespace forge {

namespace {

constexpr Collective all_gather = Collective::all_gather, reduce_scatter = Collective::reduce_scatter,
                     all_to_all = Collective::all_to_all;

}  // namespace

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
  // device where each expert's begin. Rows of no expert have no numbers, of which FP8 could take the largest.
  const bool rounds_rows_of_no_expert = m.capacity > 0 && c.fp8.on && c.fp8.experts;
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

bool gives_filler_away(const BufferContext& c, bool fp8_block) {
  const MoeShape m = moe_shape(c);
  return fp8_block && c.fp8.experts && !m.reads_counts && !m.exchanges() && m.capacity == 0;
}

std::int64_t expected_rounds(const BufferContext& c) {
  const std::int64_t rows = expected_expert_rows(c), round = moe_shape(c).round_rows;
  return std::max<std::int64_t>((rows + round - 1) / round, 1);
}

namespace {

void add_gather_of_group(Sends& sends, std::int64_t columns, DType type) {
  const BufferContext& c = sends.c;
  sends.add(Group::etp, all_gather, c.stream_rows() * columns, type);
  sends.add(Group::ep, all_gather, c.etp * c.stream_rows() * columns, type);
}
// Of a row that stands once for all of its choices.
std::int64_t group_columns(const MoeShape& m, std::int64_t columns) {
  return columns == 1 ? m.chosen : columns;
}

}  // namespace

void add_sends_out(Sends& sends, std::int64_t columns, DType type) {
  const MoeShape m = moe_shape(sends.c);
  if (m.gathers) return add_gather_of_group(sends, group_columns(m, columns), type);
  sends.add(Group::ep, all_to_all, m.places * columns / sends.c.ep, type);
  sends.add(Group::etp, all_to_all, m.places * columns, type);
}

void add_sends_back(Sends& sends, std::int64_t columns, DType type) {
  const BufferContext& c = sends.c;
  const MoeShape m = moe_shape(c);
  if (m.gathers) {
    const std::int64_t own = c.stream_rows() * group_columns(m, columns);
    sends.add(Group::ep, reduce_scatter, c.etp * own, type);
    return sends.add(Group::etp, reduce_scatter, own, type);
  }
  sends.add(Group::ep, all_to_all, m.places * columns / c.ep, type);
  sends.add(Group::etp, Collective::send, m.places * columns, type, c.etp - 1);
}

void add_sends_of_counts(Sends& sends) {
  const MoeShape m = moe_shape(sends.c);
  if (m.gathers) return add_gather_of_group(sends, m.chosen, DType::i32);
  sends.add(Group::etp, all_gather, m.experts, DType::i64);
  sends.add(Group::ep, all_gather, sends.c.etp * m.experts, DType::i64);
}

// Kernels of moe_sort: counts of chunks, their sums by expert, the experts' offsets, places.
constexpr std::int64_t moe_sort_launches = 4;

void add_sort_operations(Operations& o) {
  const MoeShape m = moe_shape(o.c);
  const int more = !m.gathers && gives_filler_away(o.c, o.fp8);
  o.over_indices("moe_sort", m.rows * m.chosen * (m.gathers ? m.sources : 1), 2, 2, moe_sort_launches + more);
  if (!o.recomputes) o.over_indices("add_counts", m.experts, 4, 2);
}

void add_operations_of_received(Operations& o) {
  const MoeShape m = moe_shape(o.c);
  if (!m.exchanges() || m.gathers) return;
  o.over_indices("moe_sort", expected_expert_rows(o.c), 2, 2, moe_sort_launches);
}

void add_operations_of_weights(Operations& o, Pass pass) {
  const MoeShape m = moe_shape(o.c);
  const std::int64_t rows = expected_expert_rows(o.c);
  const bool exchanges = m.exchanges() && !m.gathers;
  if (pass == Pass::forward) {
    o.over_rows("permute_weights", exchanges ? m.places : rows, 1, 0, 0, 1, 1);
    if (exchanges) o.over_rows("permute_rows", rows, 1, 0, 0, 1, 1);
  } else {
    o.over_rows(exchanges ? "unpermute_rows" : "copy_rows", rows, 1, 0, 0, 1, 1);
    o.over_rows("unpermute_weights", m.places, 1, 0, 0, 1, 1);
  }
}

void add_operations_out(Operations& o) {
  const MoeShape m = moe_shape(o.c);
  const std::int64_t C = o.spec.C(), rows = expected_expert_rows(o.c);
  if (m.exchanges() && !m.gathers) o.move_rows("permute_rows", C, m.places, m.places);
  o.move_rows("permute_rows", C, rows, rows);
}

void add_coded_operations_out(Operations& o, const ScaledOperand& rows) {
  const MoeShape m = moe_shape(o.c);
  const std::int64_t C = o.spec.C(), numbers = C * static_cast<std::int64_t>(size_of(o.c.precision.compute));
  const std::int64_t bytes = coded_row_bytes(rows), sent = m.gathers ? m.rows : m.places,
                     received = expected_expert_rows(o.c);
  o.row_kernels.push_back({"fp8_encode_rows", sent, C, sent * numbers, sent * bytes});
  o.row_kernels.push_back({"fp8_decode_rows", received, C, received * bytes, received * numbers});
}

void add_operations_back(Operations& o, bool adds) {
  const MoeShape m = moe_shape(o.c);
  const std::int64_t C = o.spec.C(), rows = expected_expert_rows(o.c);
  if (m.gathers) {
    o.move_rows("unpermute_rows", C, rows, m.sources * m.rows);
    if (adds) o.over_rows("add", m.rows, C, 2, 1);
    return;
  }
  if (m.exchanges()) o.move_rows("unpermute_rows", C, rows, rows);
  for (int peer = 1; peer < o.c.etp; ++peer) o.over_rows("add", rows / o.c.etp, C, 2, 1);
  o.move_rows("unpermute_rows", C, m.places, (adds ? 2 : 1) * m.rows);
}

}  // namespace forge
