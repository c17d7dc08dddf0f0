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

// Keys and values of this rank's rows.
std::int64_t pair_elements(const BufferContext& c) {
  return c.microbatch.rows() * pair_columns(c);
}

}  // namespace

std::vector<Sent> context_sends_forward(const BufferContext& c) {
  const std::int64_t cp = c.microbatch.cp, rows = c.microbatch.rows();
  const DType value = c.precision.compute;
  if (cp == 1) return {};
  if (c.cp_method == CpMethod::ring) return {{Group::cp, Collective::send, pair_elements(c), value, cp - 1}};
  if (c.cp_method == CpMethod::all_gather) return {{Group::cp, Collective::all_gather, pair_elements(c), value}};
  const ContextHeads heads = context_heads(c);
  return {{Group::cp, Collective::all_to_all, rows * heads.qkv_columns(c.spec), value},
          {Group::cp, Collective::all_to_all, rows * heads.o_columns(c.spec), value}};
}

std::vector<Sent> context_sends_backward(const BufferContext& c) {
  const std::int64_t cp = c.microbatch.cp, rows = c.microbatch.rows();
  const DType value = c.precision.compute, sum = c.precision.accumulate;
  if (cp == 1) return {};
  if (c.cp_method == CpMethod::ring)
    return {{Group::cp, Collective::send, pair_elements(c), value, cp - 1},
            {Group::cp, Collective::send, pair_elements(c), sum, cp - 1}};
  if (c.cp_method == CpMethod::all_gather)
    return {{Group::cp, Collective::all_gather, pair_elements(c), value},
            {Group::cp, Collective::reduce_scatter, pair_elements(c), sum}};
  const ContextHeads heads = context_heads(c);
  return {{Group::cp, Collective::all_to_all, rows * (heads.qkv_columns(c.spec) + heads.o_columns(c.spec)), value},
          {Group::cp, Collective::all_to_all, rows * heads.q, sum},
          {Group::cp, Collective::all_to_all, rows * heads.qkv_columns(c.spec), value}};
}

namespace {

// Attention of this rank's queries to what comes, and what it takes to bring that together.
void add_key_operations(Operations& o, AttentionProduct attention) {
  const BufferContext& c = o.c;
  const int n = c.microbatch.cp;
  const std::int64_t T = c.microbatch.sequence_tokens, q = o.spec.q_columns(), out = o.spec.o_columns();
  const bool rounds = c.precision.compute != c.precision.accumulate;
  attention.queries = position_runs(T, n, o.cp_rank);
  o.over_rows("copy_rows", o.R, pair_columns(c), 1, 1);
  for (int i = 0; i < n; ++i) {
    const int step = c.cp_method == CpMethod::ring ? n - i : i;  // whose block comes next
    attention.keys = position_runs(T, n, (o.cp_rank + step) % n);
    o.attention.push_back(attention);
    if (i == 0 && rounds) o.over_rows("convert_rows", o.R, attention.backward ? q : out, 1, 0, 0, 1);
    if (attention.backward) o.over_rows("accumulate", o.R, pair_columns(c), 1, 0, 1, 1);
    if (i > 0 && attention.backward) o.over_rows("accumulate", o.R, q, 1, 0, 1, 1);
    if (i > 0 && !attention.backward) o.over_rows("attention_merge", o.R, out, 1, 0, 1, 1);
  }
  if (rounds) o.over_rows("convert_rows", o.R, attention.backward ? q : out, 0, 1, 1, 0);
  if (attention.backward) o.over_rows("convert_rows", o.R, pair_columns(c), 0, 1, 1, 0);
}

// Of all rows and this rank's share of heads, in the order [cp rank][T/cp].
void add_head_operations(Operations& o, AttentionProduct attention) {
  const BufferContext& c = o.c;
  const ContextHeads heads = context_heads(c);
  const std::int64_t all = c.microbatch.rows_of_all(), in = heads.qkv_columns(o.spec), out = heads.o_columns(o.spec);
  const bool transposes = c.microbatch.sequences > 1;
  const auto move = [&](const char* packs, std::int64_t columns) {
    o.over_rows(packs, all, columns, 1, 1);
    if (transposes) o.over_rows("transpose_blocks", all, columns, 1, 1);
  };
  attention.heads = heads.q;
  attention.key_heads = heads.kv;
  for (int rank = 0; rank < c.microbatch.cp; ++rank)
    for (const PositionRun& run : position_runs(c.microbatch.sequence_tokens, c.microbatch.cp, rank))
      attention.queries.push_back(run);
  attention.keys = attention.queries;
  move("columns_to_blocks", attention.backward ? in + out : in);
  o.attention.push_back(attention);
  move("blocks_to_columns", attention.backward ? in : out);
}

}  // namespace

void add_context_operations(Operations& o, std::int64_t layer, Pass pass) {
  const ModelSpec& s = o.spec;
  const Microbatch& m = o.c.microbatch;
  AttentionProduct attention{pass == Pass::backward_input,
                             m.sequences,
                             s.H(),
                             s.K(),
                             s.D(),
                             s.value_dim(),
                             position_runs(m.sequence_tokens, 1, 0),
                             position_runs(m.sequence_tokens, 1, 0),
                             s.window(layer)};
  if (m.cp == 1) return o.attention.push_back(attention);
  attention.queries.clear();
  o.c.cp_method == CpMethod::all_to_all ? add_head_operations(o, attention) : add_key_operations(o, attention);
}

}  // namespace forge
