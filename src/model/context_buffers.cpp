#include "model/context_buffers.hpp"

#include <numeric>
#include <string>

#include "core/error.hpp"

namespace forge {

namespace {

constexpr Reader F = Reader::forward, B = Reader::backward_input;

struct Maker {
  const BufferContext& c;
  const ModelSpec& s = c.spec;
  std::int64_t rows = c.microbatch.rows(), ranks = c.microbatch.cp, all_rows = rows * ranks;
  bool rounds = c.precision.compute != c.precision.accumulate;  // the compute type is the shorter one

  BufferSpec value(Buf id, std::string_view name, std::int64_t r, std::int64_t columns, Reader reader) const {
    return {id, name, {{r, columns}}, c.precision.compute, reader};
  }
  BufferSpec sum(Buf id, std::string_view name, std::int64_t r, std::int64_t columns, Reader reader) const {
    return {id, name, {{r, columns}}, c.precision.accumulate, reader};
  }
  std::int64_t pair_columns() const { return s.kv_columns() + s.v_columns(); }

  // Where keys and values of this rank and of others stand.
  void keys(BufferList& list, Reader reader) const {
    if (c.cp_method == CpMethod::all_gather) {
      list.push_back(value(Buf::kv_a, "keys and values of all cp ranks", all_rows, pair_columns(), reader));
      return;
    }
    list.push_back(value(Buf::kv_a, "keys and values of a cp rank, a", rows, pair_columns(), reader));
    list.push_back(value(Buf::kv_b, "keys and values of a cp rank, b", rows, pair_columns(), reader));
  }
  void packed(BufferList& list, std::int64_t columns, Reader reader) const {
    list.push_back(value(Buf::packed_a, "heads of all rows, a", all_rows, columns, reader));
    list.push_back(value(Buf::packed_b, "heads of all rows, b", all_rows, columns, reader));
  }
};

}  // namespace

ContextHeads context_heads(const BufferContext& c) {
  const std::int64_t cp = c.microbatch.cp, H = c.spec.H(), q = H / cp;
  if (H % cp != 0)
    throw BadInput("mesh.cp_method all_to_all gives each of " + std::to_string(cp) + " cp ranks as many heads: the " +
                   std::to_string(H) + " of a tp rank must divide by cp");
  return {q, q / std::gcd(q, H / c.spec.K())};
}

BufferList scratch_context_forward(const BufferContext& c) {
  BufferList list;
  if (c.microbatch.cp == 1) return list;
  const Maker m{c};
  if (c.cp_method == CpMethod::all_to_all) {
    m.packed(list, context_heads(c).qkv_columns(c.spec), F);
    return list;
  }
  m.keys(list, F);
  if (m.rounds) list.push_back(m.sum(Buf::sum_o, "attention output, summed", m.rows, c.spec.o_columns(), F));
  list.push_back(m.value(Buf::part_o, "attention to one rank's keys", m.rows, c.spec.o_columns(), F));
  list.push_back(m.sum(Buf::part_lse, "its log-sum-exp", m.rows, c.spec.H(), F));
  return list;
}

BufferList scratch_context_backward(const BufferContext& c) {
  BufferList list;
  if (c.microbatch.cp == 1) return list;
  const Maker m{c};
  if (c.cp_method == CpMethod::all_to_all) {
    const ContextHeads heads = context_heads(c);
    m.packed(list, heads.qkv_columns(c.spec) + heads.o_columns(c.spec), B);
    list.push_back(m.sum(Buf::delta_a, "attention delta of all rows, a", m.all_rows, heads.q, B));
    list.push_back(m.sum(Buf::delta_b, "attention delta of all rows, b", m.all_rows, heads.q, B));
    if (m.rounds)
      list.push_back(m.sum(Buf::d_q_sums, "sums of the gradient of q", m.all_rows, heads.q * c.spec.D(), B));
    return list;
  }
  m.keys(list, B);
  if (m.rounds) {
    list.push_back(m.sum(Buf::d_q_sums, "sums of the gradient of q", m.rows, c.spec.q_columns(), B));
    list.push_back(m.sum(Buf::sum_d_q, "gradient of q over all ranks' keys", m.rows, c.spec.q_columns(), B));
  } else {
    list.push_back(m.value(Buf::part_d_q, "gradient of q from one rank's keys", m.rows, c.spec.q_columns(), B));
  }
  const bool gathers = c.cp_method == CpMethod::all_gather;
  if (!gathers || m.rounds)
    list.push_back(m.value(Buf::part_d_kv, "gradient of one rank's keys and values", m.rows, m.pair_columns(), B));
  if (gathers) {
    list.push_back(m.sum(Buf::d_kv_a, "gradient of all keys and values", m.all_rows, m.pair_columns(), B));
  } else {
    list.push_back(m.sum(Buf::d_kv_a, "gradient of keys and values, a", m.rows, m.pair_columns(), B));
    list.push_back(m.sum(Buf::d_kv_b, "gradient of keys and values, b", m.rows, m.pair_columns(), B));
  }
  return list;
}

namespace {

// Keys and values of this rank's rows.
std::int64_t pair_elements(const BufferContext& c) {
  return c.microbatch.rows() * (c.spec.kv_columns() + c.spec.v_columns());
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

}  // namespace forge
