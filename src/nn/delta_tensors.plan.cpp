#include "nn/delta_tensors.plan.hpp"

#include "config/family.hpp"

namespace forge {

Splits split_delta_heads(const ModelDeck& o, std::int64_t times) {
  const std::int64_t Dk = o.linear_key_dim * times, Dv = o.linear_value_dim * times, keys = o.linear_key_heads * Dk;
  return {{0, Dk, false, 0, keys}, {0, Dk, false, keys, keys}, {0, Dv, false, 2 * keys, o.linear_value_heads * Dv}};
}

ShortList<DeltaTensor, 4> delta_tensors(const ModelSpec& s) {
  const ModelDeck& o = s.options;
  const std::int64_t heads = o.linear_value_heads, channels = s.linear_channels(), values = s.linear_values();
  if (tensor_names(o.family).linear_groups) {
    Splits qkvz = split_delta_heads(o);
    qkvz.push_back({0, o.linear_value_dim, false, channels, values});
    return {{"delta.qkvz", "in_proj_qkvz", channels + values, qkvz, o.linear_key_heads},
            {"delta.ba",
             "in_proj_ba",
             2 * heads,
             {{0, 1, false, 0, heads}, {0, 1, false, heads, heads}},
             o.linear_key_heads}};
  }
  return {{"delta.qkv", "in_proj_qkv", channels, split_delta_heads(o)},
          {"delta.z", "in_proj_z", values, split_rows(o.linear_value_dim)},
          {"delta.b", "in_proj_b", heads, split_rows()},
          {"delta.a", "in_proj_a", heads, split_rows()}};
}

}  // namespace forge
