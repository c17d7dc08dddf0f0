#include "nn/context_attention.plan.hpp"

#include <numeric>
#include <string>

#include "core/error.hpp"

namespace forge {

ContextHeads context_heads(const BufferContext& c) {
  const std::int64_t n = c.cp_inner, H = c.spec.H(), q = H / n;
  if (H % n != 0)
    throw BadInput("mesh.cp_method gives each of " + std::to_string(n) + " cp ranks as many heads: the " +
                   std::to_string(H) + " of a tp rank must divide by them");
  return {q, q / std::gcd(q, H / c.spec.K())};
}

ContextRows::ContextRows(const BufferContext& c)
    : inner(c.cp_inner),
      outer(c.microbatch.cp / c.cp_inner),
      tokens(c.microbatch.local_tokens() * inner),
      count(c.microbatch.rows() * inner),
      heads(context_heads(c)) {
  require(inner * outer == c.microbatch.cp, "attention: cp is no multiple of the ranks that exchange heads");
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

// Positions of the rows of an outer rank, in their order.
PositionRuns runs_of(const BufferContext& c, const ContextRows& n, int outer_rank) {
  PositionRuns runs;
  for (int i = 0; i < n.inner; ++i)
    for (const PositionRun& run :
         position_runs(c.microbatch.sequence_tokens, c.microbatch.cp, outer_rank * n.inner + i))
      runs.push_back(run);
  return runs;
}

// Attention of this outer rank's queries to one block of keys after the other, with the sends, merges and sums.
void list_keys(Segments& list, const ContextRows& rows, AttentionProduct attention) {
  const BufferContext& c = list.c;
  const int n = rows.outer, own_rank = list.cp_rank / rows.inner;
  const std::int64_t pair = rows.heads.pair_columns(list.spec);
  const std::int64_t own = attention.backward ? rows.heads.q_columns(list.spec) : rows.heads.o_columns(list.spec);
  const DType value = c.precision.compute, sum = c.precision.accumulate;
  const bool rounds = value != sum, ring = c.cp_method != CpMethod::all_gather;
  const auto send = [&](Collective collective, DType type) {
    list.aside = true;
    list.send(rows.key_group(), collective, rows.count * pair, type);
    list.aside = false;
  };
  const auto widen = [&](std::int64_t columns) { list.over_rows("convert_rows", rows.count, columns, 1, 0, 0, 1); };
  const auto narrow = [&](std::int64_t columns) { list.over_rows("convert_rows", rows.count, columns, 0, 1, 1, 0); };
  const auto add = [&](const char* how, std::int64_t columns) { list.over_rows(how, rows.count, columns, 1, 0, 1, 1); };
  attention.queries = runs_of(c, rows, own_rank);
  list.over_rows("copy_rows", rows.count, pair, 1, 1);
  if (!ring) send(Collective::all_gather, value);
  for (int i = 0; i < n; ++i) {
    if (ring && i + 1 < n) send(Collective::send, value);
    const int step = ring ? n - i : i;  // whose block comes next
    attention.keys = runs_of(c, rows, (own_rank + step) % n);
    list.add(attention);
    if (i == 0 && rounds) widen(own);
    if (i > 0) add(attention.backward ? "accumulate" : "attention_merge", own);
    if (!attention.backward) continue;
    if (ring ? i == 1 : rounds) widen(pair);
    if (ring && i > 1) add("accumulate", pair);
    if (ring && i > 0) send(Collective::send, sum);
  }
  if (attention.backward && ring) add("accumulate", pair);
  if (attention.backward && !ring) send(Collective::reduce_scatter, sum);
  if (rounds) narrow(own);
  if (attention.backward) narrow(pair);
}

// Attention to all keys, with sinks once, of whatever rows and heads this rank works on.
void list_attention(Segments& list, const ContextRows& n, AttentionProduct attention) {
  attention.heads = n.heads.q;
  attention.key_heads = n.heads.kv;
  if (attention.backward) list_sinks(list, n.count, n.heads.q, true);
  if (n.outer > 1) {
    list_keys(list, n, attention);
  } else {
    attention.queries = attention.keys = runs_of(list.c, n, 0);
    list.add(attention);
  }
  if (!attention.backward) list_sinks(list, n.count, n.heads.q, false);
}

// Of the inner ranks' rows and this rank's share of heads, in the order [inner rank][T/cp].
void list_heads(Segments& list, const ContextRows& n, const AttentionProduct& attention) {
  const BufferContext& c = list.c;
  const std::int64_t in = n.heads.qkv_columns(list.spec), out = n.heads.o_columns(list.spec),
                     own_out = list.R * list.spec.o_columns(),
                     own_in = list.R * (list.spec.q_columns() + list.spec.kv_columns() + list.spec.v_columns());
  const auto send = [&](std::int64_t columns, DType type) {
    list.send(n.head_group(), Collective::all_to_all, list.R * columns, type);
  };
  const auto transpose = [&](std::int64_t columns) {
    if (c.microbatch.sequences > 1) list.over_rows("transpose_blocks", n.count, columns, 1, 1);
  };
  const std::int64_t there = attention.backward ? in + out : in, back = attention.backward ? in : out;
  list.move_rows("columns_to_blocks", 1, own_in + (attention.backward ? own_out : 0), n.count * there);
  if (attention.backward) list.over_rows("columns_to_blocks", n.count, n.heads.q, 0, 0, 1, 1);  // of delta
  send(there, c.precision.compute);
  transpose(there);
  if (attention.backward) {
    send(n.heads.q, c.precision.accumulate);
    if (c.microbatch.sequences > 1) list.over_rows("transpose_blocks", n.count, n.heads.q, 0, 0, 1, 1);
  }
  list_attention(list, n, attention);
  transpose(back);
  send(back, c.precision.compute);
  list.move_rows("blocks_to_columns", 1, n.count * back, attention.backward ? own_in : own_out);
}

}  // namespace

void list_context(Segments& list, std::int64_t layer, Pass pass) {
  const ModelSpec& s = list.spec;
  const AttentionProduct attention{pass == Pass::backward_input,
                                   list.c.microbatch.sequences,
                                   s.H(),
                                   s.K(),
                                   s.D(),
                                   s.value_dim(),
                                   {},
                                   {},
                                   s.window(layer)};
  const ContextRows n(list.c);
  n.inner > 1 ? list_heads(list, n, attention) : list_attention(list, n, attention);
}

}  // namespace forge
