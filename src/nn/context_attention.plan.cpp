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

}  // namespace forge
