#include "model/moe_buffers.hpp"

#include <cmath>

#include "config/router_score.hpp"
#include "model/block_parts.hpp"

namespace forge {

namespace {

constexpr Reader F = Reader::forward, B = Reader::backward_input, W = Reader::backward_weight;

std::int64_t at_least(double factor, std::int64_t balanced_assignments, std::int64_t parts) {
  // A little less than the product, so that rounding of the factor doesn't add a row.
  return std::max<std::int64_t>(static_cast<std::int64_t>(std::ceil(factor * static_cast<double>(balanced_assignments) /
                                                                    static_cast<double>(parts) * (1 - 1e-12))),
                                1);
}

// Buffers of a layer with experts, beside those of all rows.
struct MoeMaker {
  const BufferContext& c;
  MoeShape m = moe_shape(c);
  DType acc = c.precision.accumulate;

  BufferSpec choices(Buf id, std::string_view name, DType type, Reader reader) const {
    return {id, name, {{m.rows, m.chosen}}, type, reader};
  }
  BufferSpec scores(Buf id, std::string_view name, DType type, Reader reader) const {
    return {id, name, {{m.rows, m.experts}}, type, reader};
  }
  BufferSpec received_rows(Buf id, std::string_view name, std::int64_t columns, DType type, Reader reader) const {
    return {id, name, {{m.round_rows, columns}}, type, reader};
  }
  BufferSpec line(Buf id, std::string_view name, std::int64_t elements, DType type, Reader reader = F) const {
    return {id, name, {{elements, 1}}, type, reader};
  }
  bool chosen_by_logit() const { return forge::chosen_by_logit(c.spec.options.router_score); }
  bool backward_reads_logits() const { return chosen_by_logit() || c.spec.options.router_z_coefficient > 0; }
};

// What exchanging rows needs, forward and backward.
void add_exchange(const MoeMaker& x, BufferList& list) {
  const std::int64_t width = x.c.spec.C();
  const DType value = x.c.precision.compute;
  if (x.m.gathers) {
    const std::int64_t rows = x.m.rows * x.m.sources;
    list.push_back({Buf::group_rows, "rows of all sources", {{rows, width}}, value, F});
    list.push_back({Buf::group_sums, "sums for all sources", {{rows, width}}, value, F});
    list.push_back({Buf::group_weights, "weights of all sources", {{rows, x.m.chosen}}, x.acc, F});
    list.push_back(x.line(Buf::assignment_weights, "weights of assignments", x.m.places, x.acc));
    return;
  }
  list.push_back({Buf::assignments, "rows of assignments", {{x.m.places, width}}, value, F});
  list.push_back(x.line(Buf::assignment_weights, "weights of assignments", x.m.places, x.acc));
  if (!x.m.exchanges()) return;
  list.push_back(x.received_rows(Buf::received, "rows as received", width, value, F));
  list.push_back(x.line(Buf::received_line, "weights as received", x.m.round_rows, x.acc));
  list.push_back(
      x.line(Buf::received_blocks, "rows of each source and expert", x.m.sources * x.m.experts_here, DType::i64));
  list.push_back(x.line(Buf::received_experts, "experts of received rows", x.m.round_rows, DType::i32));
  list.push_back(x.line(Buf::received_order, "received rows by expert", x.m.round_rows, DType::i32));
  list.push_back(x.line(Buf::received_place, "places of received rows", x.m.round_rows, DType::i32));
  list.push_back(x.line(Buf::received_counts, "received rows of each expert", x.m.experts_here, DType::i64));
  list.push_back(x.line(Buf::received_offsets, "their begins", x.m.experts_here + 1, DType::i64));
  list.push_back({Buf::received_sort,
                  "order of received rows",
                  {{moe_sort_rows(x.m.round_rows), x.m.experts_here}},
                  DType::i32,
                  F});
  if (x.c.etp > 1) {
    list.push_back(x.received_rows(Buf::peer_rows, "rows from an etp rank", width, value, F));
    list.push_back(x.line(Buf::peer_line, "weights from an etp rank", x.m.round_rows, x.acc));
  }
}

void add_capacity(const MoeMaker& x, BufferList& list) {
  const bool sequence = x.c.spec.options.capacity_scope == CapacityScope::sequence;
  const std::int64_t ranks = sequence ? x.c.tp * x.c.microbatch.cp : 1;
  const std::int64_t rows = x.m.rows * ranks, bins = (sequence ? x.c.microbatch.sequences : 1) * x.m.experts;
  auto add = [&](Buf id, const char* name, std::int64_t n, std::int64_t columns, DType type) {
    list.push_back({id, name, {{n, columns}}, type, F});
  };
  if (ranks > 1) {
    add(Buf::all_choices, "choices of all ranks", rows, x.m.chosen, DType::i32);
    add(Buf::all_choice_weights, "weights of all ranks", rows, x.m.chosen, x.acc);
    add(Buf::all_kept, "kept choices of all ranks", rows, x.m.chosen, DType::i32);
    add(Buf::tp_choices, "choices of tp ranks", x.m.rows * x.c.tp, x.m.chosen, DType::i32);
    add(Buf::tp_choice_weights, "weights of tp ranks", x.m.rows * x.c.tp, x.m.chosen, x.acc);
  }
  add(Buf::capacity_bins, "bins of choices", rows, x.m.chosen, DType::i32);
  add(Buf::capacity_place, "places in bins", rows, x.m.chosen, DType::i32);
  add(Buf::capacity_order, "order by bin", rows * x.m.chosen, 1, DType::i32);
  add(Buf::capacity_counts, "choices of each bin", bins, 1, DType::i64);
  add(Buf::capacity_offsets, "their begins", bins + 1, 1, DType::i64);
  add(Buf::capacity_sort, "order of bins", moe_sort_rows(rows * x.m.chosen), bins, DType::i32);
}

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
  m.fixed = o.capacity_factor > 0 && o.capacity_scope == CapacityScope::rank;
  if (o.capacity_factor > 0) {
    const std::int64_t scope = m.fixed ? m.rows : c.microbatch.sequence_tokens;
    m.capacity = std::min(at_least(o.capacity_factor, scope * m.chosen, m.experts), scope);
  }
  m.gathers = o.dispatch == DispatchMethod::all_gather && m.exchanges();
  m.places = m.fixed ? m.experts * m.capacity : m.rows * m.chosen * (m.gathers ? m.sources : 1);
  const std::int64_t most =
      m.sources * (m.fixed ? m.experts_here * m.capacity : m.rows * std::min(m.chosen, m.experts_here));
  m.round_rows = m.fixed ? most : std::min(at_least(o.dispatch_rows, c.etp * m.rows * m.chosen, 1), most);
  return m;
}

std::int64_t balance_scopes(const BufferContext& c) {
  return c.spec.options.auxiliary_loss_scope == AuxiliaryScope::sequence ? c.microbatch.sequences : 1;
}

void add_moe_forward(const BufferContext& c, TaggedBuffers& list) {
  const MoeMaker x{c};
  const BufferMaker all{c};
  const ModelSpec& s = c.spec;
  const DType value = c.precision.compute;
  auto save = [&](const BufferSpec& buffer) { list.push_back({Keep::save, buffer}); };
  if (s.Fs() > 0) {
    save(all.value(Buf::up, s.gated() ? "shared gate and up" : "shared up", s.up_columns(s.Fs()), W));
    list.push_back({Keep::recompute, all.value(Buf::act, "shared activation", s.Fs(), W)});
  }
  if (s.options.shared_expert_gate) {
    save(all.stream_value(Buf::shared_out, "shared experts' output", B));
    save(x.line(Buf::shared_gate, "shared experts' gate", x.m.rows, x.acc, B));
  }
  if (x.backward_reads_logits()) save(x.scores(Buf::router_logits, "router logits", x.acc, B));
  save(x.scores(Buf::router_scores, "router scores", x.acc, B));
  save(x.choices(Buf::choices, "chosen experts", DType::i32, B));
  if (s.options.capacity_factor > 0) save(x.choices(Buf::kept_choices, "kept experts", DType::i32, B));
  save(x.choices(Buf::choice_weights, "weights of experts", x.acc, B));
  if (s.options.auxiliary_loss_coefficient > 0)
    save({Buf::balance, "balance of experts", {{balance_scopes(c), 2 * x.m.experts + 1}}, DType::f64, B});
  save(x.line(Buf::assignment_order, "assignments by expert", x.m.places, DType::i32, B));
  const std::int64_t placed = x.m.rows * (x.m.gathers ? x.m.sources : 1);
  save({Buf::assignment_place, "places of assignments", {{placed, x.m.chosen}}, DType::i32, B});
  if (x.m.gathers) save(x.line(Buf::assignment_offsets, "begins of experts", x.m.experts + 1, DType::i64, B));
  if (!x.m.fixed && !x.m.gathers)
    save({Buf::assignment_counts, "assignments of each source", {{x.m.sources, x.m.experts}}, DType::i64, B});
  save(x.line(Buf::received_weights, "weights of expert rows", x.m.round_rows, x.acc, B));
  save(x.received_rows(Buf::expert_in, "expert rows", s.C(), value, B));
  save(x.received_rows(Buf::expert_up, "experts' gate and up", 2 * x.m.ffn, value, B));
  list.push_back({Keep::recompute, x.received_rows(Buf::expert_act, "experts' activation", x.m.ffn, value, B)});
}

void add_moe_scratch_forward(const BufferContext& c, BufferList& list) {
  const MoeMaker x{c};
  const ModelDeck& o = c.spec.options;
  if (!x.backward_reads_logits()) list.push_back(x.scores(Buf::router_logits, "router logits", x.acc, F));
  if (o.router_jitter > 0) list.push_back(BufferMaker{c}.stream_value(Buf::jittered, "router input", F));
  if (o.router_z_coefficient > 0) list.push_back(x.line(Buf::router_z, "z of each row", x.m.rows, x.acc));
  if (o.auxiliary_loss_coefficient > 0)
    list.push_back({Buf::balance_partial,
                    "balance sums",
                    {{router_partial_rows(x.m.rows) * balance_scopes(c), 2 * x.m.experts + 1}},
                    DType::f64,
                    F});
  if (o.capacity_factor > 0) add_capacity(x, list);
  list.push_back(x.line(Buf::own_counts, "assignments of each expert", x.m.experts, DType::i64));
  list.push_back(x.line(Buf::own_offsets, "their begins", x.m.experts + 1, DType::i64));
  const std::int64_t sorted = x.m.rows * (x.m.gathers ? x.m.sources : 1);
  list.push_back(
      {Buf::own_sort, "order of assignments", {{moe_sort_rows(sorted * x.m.chosen), x.m.experts}}, DType::i32, F});
  if (x.m.gathers)
    list.push_back({Buf::group_choices, "choices of all sources", {{sorted, x.m.chosen}}, DType::i32, F});
  if (x.m.fixed)
    list.push_back(x.line(Buf::own_order, "assignments without padding", x.m.rows * x.m.chosen, DType::i32));
  add_exchange(x, list);
  if (x.m.exchanges())
    list.push_back(x.received_rows(Buf::expert_out, "experts' output", c.spec.C(), c.precision.compute, F));
}

void add_moe_gradients(const BufferContext& c, BufferList& list) {
  const MoeMaker x{c};
  list.push_back(x.scores(Buf::d_router, "gradient of router logits", c.precision.compute, W));
  if (c.spec.options.shared_expert_gate)
    list.push_back(
        x.line(Buf::d_shared_gate, "gradient of the shared experts' gate", x.m.rows, c.precision.compute, W));
}

void add_moe_scratch_backward(const BufferContext& c, BufferList& list) {
  const MoeMaker x{c};
  const ModelSpec& s = c.spec;
  if (s.Fs() > 0) list.push_back(BufferMaker{c}.value(Buf::d_act, "gradient of the shared activation", s.Fs(), B));
  if (s.options.dropout > 0) list.push_back(BufferMaker{c}.stream_value(Buf::d_branch, "gradient before dropout", B));
  if (s.options.router_jitter > 0) list.push_back(BufferMaker{c}.stream_value(Buf::jittered, "router input", B));
  if (c.precision.compute != x.acc) list.push_back(x.scores(Buf::d_router_sums, "sums of its gradient", x.acc, B));
  list.push_back(x.choices(Buf::d_choice_weights, "gradient of weights of experts", x.acc, B));
  list.push_back(x.received_rows(Buf::d_expert, "gradient of expert rows", s.C(), c.precision.compute, B));
  list.push_back(
      x.received_rows(Buf::d_expert_act, "gradient of experts' activation", x.m.ffn, c.precision.compute, B));
  list.push_back(x.line(Buf::d_received_weights, "gradient of weights of expert rows", x.m.round_rows, x.acc, B));
  add_exchange(x, list);
}

void add_router_run(const BufferContext& c, BufferList& list) {
  const std::int64_t layers = c.spec.L() + c.spec.options.mtp_depth, experts = c.spec.E(), rows = c.microbatch.rows();
  auto add = [&](Buf id, const char* name, std::int64_t n, std::int64_t columns, DType type) {
    list.push_back({id, name, {{n, columns}}, type, F});
  };
  add(Buf::row_scopes, "sequences of rows", rows, 1, DType::i32);
  add(Buf::zero_scopes, "one scope", rows, 1, DType::i32);
  if (c.microbatch.cp > 1) {
    add(Buf::all_row_scopes, "sequences of all cp ranks' rows", rows * c.microbatch.cp, 1, DType::i32);
    add(Buf::all_row_positions, "their positions", rows * c.microbatch.cp, 1, DType::i32);
  }
  add(Buf::router_sums, "sums of routers", layers, experts + router_sum_count, DType::f64);
  add(Buf::router_dropped, "dropped assignments", layers, 1, DType::i64);
  if (c.spec.options.router_bias) add(Buf::router_bias, "biases of routers", layers, experts, c.precision.accumulate);
}

void add_moe_scratch_weight(const BufferContext& c, BufferList& list) {
  if (c.spec.options.router_jitter > 0) list.push_back(BufferMaker{c}.stream_value(Buf::jittered, "router input", W));
}

}  // namespace forge
