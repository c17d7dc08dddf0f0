#include "nn/context_attention.plan.hpp"

#include <numeric>
#include <string>

#include "core/error.hpp"

namespace forge {

ContextHeads context_heads(const BufferContext& c) {
  const std::int64_t cp = c.microbatch.cp, H = c.spec.H(), q = H / cp;
  if (H % cp != 0)
    throw BadInput("mesh.cp_method all_to_all gives each of " + std::to_string(cp) + " cp ranks as many heads: the " +
                   std::to_string(H) + " of a tp rank must divide by cp");
  return {q, q / std::gcd(q, H / c.spec.K())};
}

namespace {

// Attention sinks of so many rows and heads.
void list_sinks(Segments& list, std::int64_t rows, std::int64_t heads, bool backward) {
  if (!list.spec.options.attention_sinks) return;
  if (!backward) return void(list.over_rows("attention_sinks", rows, heads * list.spec.value_dim(), 1, 1));
  if (list.frozen) return;
  list.over_rows("attention_sink_terms", rows, heads, 0, 0, 2, 1);
  list.over_rows("column_sum", rows, heads, 0, 0, 1, 0).launches = 2;
}

// Attention of this rank's queries to what comes, and what it takes to bring that together.
void list_keys(Segments& list, AttentionProduct attention) {
  const BufferContext& c = list.c;
  const int n = c.microbatch.cp;
  const std::int64_t T = c.microbatch.sequence_tokens, pair = pair_columns(c);
  const std::int64_t own = attention.backward ? list.spec.q_columns() : list.spec.o_columns();
  const DType value = c.precision.compute, sum = c.precision.accumulate;
  const bool rounds = value != sum, ring = c.cp_method == CpMethod::ring;
  const auto send = [&](Collective collective, DType type) {
    list.aside = true;
    list.send(Group::cp, collective, list.R * pair, type);
    list.aside = false;
  };
  const auto widen = [&](std::int64_t columns) { list.over_rows("convert_rows", list.R, columns, 1, 0, 0, 1); };
  const auto narrow = [&](std::int64_t columns) { list.over_rows("convert_rows", list.R, columns, 0, 1, 1, 0); };
  const auto accumulate = [&](std::int64_t columns) { list.over_rows("accumulate", list.R, columns, 1, 0, 1, 1); };
  attention.queries = position_runs(T, n, list.cp_rank);
  if (attention.backward) list_sinks(list, list.R, list.spec.H(), true);
  list.over_rows("copy_rows", list.R, pair, 1, 1);
  if (!ring) send(Collective::all_gather, value);
  for (int i = 0; i < n; ++i) {
    if (ring && i + 1 < n) send(Collective::send, value);
    const int step = ring ? n - i : i;  // whose block comes next
    attention.keys = position_runs(T, n, (list.cp_rank + step) % n);
    list.add(attention);
    if (i == 0 && rounds) widen(own);
    if (i > 0) list.over_rows(attention.backward ? "accumulate" : "attention_merge", list.R, own, 1, 0, 1, 1);
    if (!attention.backward) continue;
    if (ring ? i == 1 : rounds) widen(pair);
    if (ring && i > 1) accumulate(pair);
    if (ring && i > 0) send(Collective::send, sum);
  }
  if (attention.backward && ring) accumulate(pair);
  if (attention.backward && !ring) send(Collective::reduce_scatter, sum);
  if (rounds) narrow(own);
  if (!attention.backward) list_sinks(list, list.R, list.spec.H(), false);
  if (attention.backward) narrow(pair);
}

// Of all rows and this rank's share of heads, in the order [cp rank][T/cp].
void list_heads(Segments& list, AttentionProduct attention) {
  const BufferContext& c = list.c;
  const ContextHeads heads = context_heads(c);
  const std::int64_t all = c.microbatch.rows_of_all(), in = heads.qkv_columns(list.spec),
                     out = heads.o_columns(list.spec), own_out = list.R * list.spec.o_columns(),
                     own_in = list.R * (list.spec.q_columns() + pair_columns(c));
  const auto send = [&](std::int64_t columns, DType type) {
    list.send(Group::cp, Collective::all_to_all, list.R * columns, type);
  };
  const auto transpose = [&](std::int64_t columns) {
    if (c.microbatch.sequences > 1) list.over_rows("transpose_blocks", all, columns, 1, 1);
  };
  const std::int64_t there = attention.backward ? in + out : in, back = attention.backward ? in : out;
  attention.heads = heads.q;
  attention.key_heads = heads.kv;
  for (int rank = 0; rank < c.microbatch.cp; ++rank)
    for (const PositionRun& run : position_runs(c.microbatch.sequence_tokens, c.microbatch.cp, rank))
      attention.queries.push_back(run);
  attention.keys = attention.queries;
  list.move_rows("columns_to_blocks", 1, own_in + (attention.backward ? own_out : 0), all * there);
  if (attention.backward) list.over_rows("columns_to_blocks", all, heads.q, 0, 0, 1, 1);  // of delta
  send(there, c.precision.compute);
  transpose(there);
  if (attention.backward) {
    send(heads.q, c.precision.accumulate);
    if (c.microbatch.sequences > 1) list.over_rows("transpose_blocks", all, heads.q, 0, 0, 1, 1);
  }
  if (attention.backward) list_sinks(list, all, heads.q, true);
  list.add(attention);
  if (!attention.backward) list_sinks(list, all, heads.q, false);
  transpose(back);
  send(back, c.precision.compute);
  list.move_rows("blocks_to_columns", 1, all * back, attention.backward ? own_in : own_out);
}

}  // namespace

void list_context(Segments& list, std::int64_t layer, Pass pass) {
  const ModelSpec& s = list.spec;
  const Microbatch& m = list.c.microbatch;
  AttentionProduct attention{pass == Pass::backward_input,
                             m.sequences,
                             s.H(),
                             s.K(),
                             s.D(),
                             s.value_dim(),
                             position_runs(m.sequence_tokens, 1, 0),
                             position_runs(m.sequence_tokens, 1, 0),
                             s.window(layer)};
  if (m.cp == 1) {
    if (attention.backward) list_sinks(list, list.R, s.H(), true);
    list.add(attention);
    if (!attention.backward) list_sinks(list, list.R, s.H(), false);
    return;
  }
  attention.queries.clear();
  list.c.cp_method == CpMethod::all_to_all ? list_heads(list, attention) : list_keys(list, attention);
}

}  // namespace forge
