#include "nn/context_attention.plan.hpp"

#include <numeric>
#include <string>

#include "core/error.hpp"

namespace forge {

namespace {

constexpr Reader F = Reader::forward, B = Reader::backward_input;

// Columns of a key and its value.
std::int64_t pair_columns(const BufferContext& c) {
  return c.spec.kv_columns() + c.spec.v_columns();
}

// Where keys and values of this rank and of others stand.
template <class T>
void list_keys(BufferLister& l, View<T, 2>& a, View<T, 2>& b, Reader last) {
  if (l.c.cp_method == CpMethod::all_gather)
    return l.add(a, "keys and values of all cp ranks", l.c.microbatch.rows_of_all(), pair_columns(l.c), last);
  l.add(a, "keys and values of a cp rank, a", l.R, pair_columns(l.c), last);
  l.add(b, "keys and values of a cp rank, b", l.R, pair_columns(l.c), last);
}

template <class T>
void list_packed(BufferLister& l, View<T, 2>& a, View<T, 2>& b, std::int64_t columns, Reader last) {
  l.add(a, "heads of all rows, a", l.c.microbatch.rows_of_all(), columns, last);
  l.add(b, "heads of all rows, b", l.c.microbatch.rows_of_all(), columns, last);
}

}  // namespace

ContextHeads context_heads(const BufferContext& c) {
  const std::int64_t cp = c.microbatch.cp, H = c.spec.H(), q = H / cp;
  if (H % cp != 0)
    throw BadInput("mesh.cp_method all_to_all gives each of " + std::to_string(cp) + " cp ranks as many heads: the " +
                   std::to_string(H) + " of a tp rank must divide by cp");
  return {q, q / std::gcd(q, H / c.spec.K())};
}

template <class T>
void KeyForward<T>::list(BufferLister& l) {
  list_keys(l, kv_a, kv_b, F);
  if (rounds<T>) l.add(sum_o, "attention output, summed", l.R, l.spec.o_columns(), F);
  l.add(part_o, "attention to one rank's keys", l.R, l.spec.o_columns(), F);
  l.add(part_lse, "its log-sum-exp", l.R, l.spec.H(), F);
}

template <class T>
void KeyBackward<T>::list(BufferLister& l) {
  const bool gathers = l.c.cp_method == CpMethod::all_gather;
  list_keys(l, kv_a, kv_b, B);
  if (rounds<T>) {
    l.add(d_q_sums, "sums of the gradient of q", l.R, l.spec.q_columns(), B);
    l.add(sum_d_q, "gradient of q over all ranks' keys", l.R, l.spec.q_columns(), B);
  } else {
    l.add(part_d_q, "gradient of q from one rank's keys", l.R, l.spec.q_columns(), B);
  }
  if (!gathers || rounds<T>) l.add(part_d_kv, "gradient of one rank's keys and values", l.R, pair_columns(l.c), B);
  if (gathers)
    return l.add(d_kv_a, "gradient of all keys and values", l.c.microbatch.rows_of_all(), pair_columns(l.c), B);
  l.add(d_kv_a, "gradient of keys and values, a", l.R, pair_columns(l.c), B);
  l.add(d_kv_b, "gradient of keys and values, b", l.R, pair_columns(l.c), B);
}

template <class T>
void HeadForward<T>::list(BufferLister& l) {
  list_packed(l, packed_a, packed_b, context_heads(l.c).qkv_columns(l.spec), F);
}

template <class T>
void HeadBackward<T>::list(BufferLister& l) {
  const ContextHeads heads = context_heads(l.c);
  const std::int64_t rows = l.c.microbatch.rows_of_all();
  list_packed(l, packed_a, packed_b, heads.qkv_columns(l.spec) + heads.o_columns(l.spec), B);
  l.add(delta_a, "attention delta of all rows, a", rows, heads.q, B);
  l.add(delta_b, "attention delta of all rows, b", rows, heads.q, B);
  if (rounds<T>) l.add(d_q_sums, "sums of the gradient of q", rows, heads.q * l.spec.D(), B);
}

template struct KeyForward<double>;
template struct KeyForward<float>;
template struct KeyForward<bf16>;
template struct KeyBackward<double>;
template struct KeyBackward<float>;
template struct KeyBackward<bf16>;
template struct HeadForward<double>;
template struct HeadForward<float>;
template struct HeadForward<bf16>;
template struct HeadBackward<double>;
template struct HeadBackward<float>;
template struct HeadBackward<bf16>;

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

}  // namespace forge
