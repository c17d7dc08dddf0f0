#include <algorithm>
#include <string_view>

#include "config/check_parts.hpp"
#include "config/family.hpp"
#include "config/key_bounds.hpp"
#include "config/keys.hpp"
#include "config/router_score.hpp"
#include "core/parse.hpp"

namespace forge {

void check_unused(const ModelDeck& m, std::string_view names, const char* without, Report& report) {
  Deck deck;
  deck.model = m;
  for (const std::string_view name : parts_of(names, ' ')) {
    const Key& key = *find_key("model", std::string(name));
    if (!is_default(key, deck))
      report.add(key.qualified() + " = " + value_text(key, deck) + " has no effect " + without +
                 "; legal: " + default_text(key));
  }
}

namespace {

constexpr const char* latent_keys = "q_lora kv_lora nope_dim rope_dim value_dim rope_interleave latent_norm_epsilon";
constexpr const char* expert_keys =
    "experts_per_token expert_ffn shared_expert_ffn shared_expert_gate expert_bias first_dense_layers moe_every "
    "dense_layers router_score router_renormalise router_scale router_groups router_groups_used router_group_score "
    "router_logit_bias router_bias router_bias_rate auxiliary_loss_coefficient auxiliary_loss_scope "
    "router_z_coefficient router_jitter "
    "forced_balance capacity_factor capacity_drop dispatch dispatch_rows";

void check_router(ModelDeck& m, Report& report) {
  if (m.router_groups_used == 0) m.router_groups_used = m.router_groups;
  const std::string experts = equation("model.experts", m.experts),
                    groups = equation("model.router_groups", m.router_groups);
  if (m.router_groups > most_router_groups) {
    report.add(groups + "; legal: at most " + std::to_string(most_router_groups));
    return;
  }
  if (m.experts % m.router_groups != 0) {
    report.add(experts + " is no multiple of " + groups +
               "; nearest legal router_groups: " + nearest_divisors(m.router_groups, m.experts));
    return;
  }
  const std::int64_t of_group = m.experts / m.router_groups;
  if (m.router_groups_used > m.router_groups)
    report.add(equation("model.router_groups_used", m.router_groups_used) + "; legal: at most " + groups);
  else if (m.router_groups_used * of_group < m.experts_per_token)
    report.add(equation("model.router_groups_used", m.router_groups_used) + " of " + std::to_string(of_group) +
               " experts each are fewer than " + equation("model.experts_per_token", m.experts_per_token) +
               "; legal: at least " + std::to_string((m.experts_per_token + of_group - 1) / of_group));
  if (m.router_groups > 1 && m.router_group_score == GroupScoreKind::top2_sum && of_group < 2)
    report.add(groups +
               " leaves one expert to a group, and model.router_group_score = top2_sum takes two; legal: at most " +
               std::to_string(m.experts / 2) + ", or router_group_score: max");
  if (m.router_groups == 1) check_unused(m, "router_group_score", "with model.router_groups = 1", report);
  if (!m.router_bias) check_unused(m, "router_bias_rate", "without model.router_bias", report);
}

void check_expert_layers(const ModelDeck& m, Report& report) {
  if (m.first_dense_layers > m.layers)
    report.add(equation("model.first_dense_layers", m.first_dense_layers) + "; legal: at most " +
               equation("model.layers", m.layers));
  if (!m.dense_layers.empty() && m.dense_layers.back() >= m.layers)
    report.add("model.dense_layers has " + std::to_string(m.dense_layers.back()) + "; legal: less than " +
               equation("model.layers", m.layers));
}

}  // namespace

void check_latent_attention(ModelDeck& m, Report& report) {
  if (m.attention == AttentionKind::standard)
    return check_unused(m, latent_keys, "with model.attention = standard", report);
  const auto needs = [&](const char* key, std::int64_t value) {
    if (value < 1) report.add(equation(key, value) + " with model.attention = mla; legal: at least 1");
  };
  needs("model.kv_lora", m.kv_lora);
  needs("model.nope_dim", m.nope_dim);
  if (m.value_dim == 0) m.value_dim = m.nope_dim;
  if (m.rope_dim < 2 || m.rope_dim % 2 != 0)
    report.add(equation("model.rope_dim", m.rope_dim) +
               " with model.attention = mla; nearest legal: " + nearest_multiples(m.rope_dim, 2));
  const std::int64_t head = m.nope_dim + m.rope_dim;
  if (m.head_dim == 0) m.head_dim = head;
  if (m.head_dim != head)
    report.add(equation("model.head_dim", m.head_dim) + " with model.attention = mla; legal: model.nope_dim + " +
               "model.rope_dim = " + std::to_string(head) + ", or 0");
  if (m.kv_heads == 0) m.kv_heads = m.heads;
  if (m.kv_heads != m.heads)
    report.add(equation("model.kv_heads", m.kv_heads) +
               " with model.attention = mla; legal: " + equation("model.heads", m.heads) + ", or 0");
  if (m.positions != PositionKind::rope)
    report.add("model.positions = learned with model.attention = mla; legal: rope");
  check_unused(m,
               "qk_norm qkv_bias sliding_window rope_fraction no_rope_every norm_placement query_pre_attn_scalar "
               "query_position_scale attention_sinks",
               "with model.attention = mla", report);
}

void check_experts(ModelDeck& m, Report& report) {
  if (m.mtp_depth == 0) check_unused(m, "mtp_loss_factor", "without model.mtp_depth", report);
  if (m.mtp_depth > 1 && tensor_names(m.family).mtp)
    report.add(equation("model.mtp_depth", m.mtp_depth) + " with model.family = " + name_of(m.family) +
               ", which has one layer of multi-token prediction; legal: 0 | 1");
  if (m.experts == 0) return check_unused(m, expert_keys, "without model.experts", report);
  if (m.expert_ffn == 0) m.expert_ffn = m.ffn;
  if (m.experts_per_token < 1 || m.experts_per_token > std::min(m.experts, most_expert_choices)) {
    report.add(equation("model.experts_per_token", m.experts_per_token) + "; legal: 1 to " +
               (m.experts <= most_expert_choices ? equation("model.experts", m.experts)
                                                 : std::to_string(most_expert_choices)));
    return;
  }
  if (m.shared_expert_ffn == 0) check_unused(m, "shared_expert_gate", "without model.shared_expert_ffn", report);
  if (m.activation != Activation::swiglu && m.activation != Activation::clamped_swiglu)
    report.add("model.activation = " + activation_word(m) + " with model.experts; legal: swiglu | clamped_swiglu");
  if (m.mlp_bias)
    report.add("model.mlp_bias = true with model.experts: not available; legal: false, or model.expert_bias: true");
  check_router(m, report);
  if (m.capacity_factor == 0) check_unused(m, "capacity_drop", "without model.capacity_factor", report);
  check_expert_layers(m, report);
}

}  // namespace forge
