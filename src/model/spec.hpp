#pragma once

#include <cstdint>

#include "config/deck.hpp"

namespace forge {

// A model whose dimensions are all known: the deck's model section, resolved (no zero left that means "derive it").
// Letters as in docs/developer.md.
struct ModelSpec {
  ModelDeck options;

  std::int64_t L() const { return options.layers; }
  std::int64_t C() const { return options.width; }
  std::int64_t H() const { return options.heads; }
  std::int64_t K() const { return options.kv_heads; }
  std::int64_t D() const { return options.head_dim; }  // of queries and keys; with mla nope_dim + rope_dim
  std::int64_t F() const { return options.ffn; }
  std::int64_t V() const { return options.vocabulary; }

  std::int64_t q_columns() const { return H() * D(); }
  std::int64_t kv_columns() const { return K() * D(); }
  std::int64_t v_columns() const { return K() * value_dim(); }
  std::int64_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
  // Sigmoid gates of attention's output: the projection to q, k and v has 2 D columns for each query head.
  bool output_gate() const { return options.attention_output_gate; }
  std::int64_t q_rows() const { return output_gate() ? 2 * q_columns() : q_columns(); }
  std::int64_t projected_columns() const { return q_rows() + 2 * kv_columns(); }
  bool gated() const { return is_gated(options.activation); }
  // Columns of the first feed-forward product: gate and up side by side, or F.
  std::int64_t up_columns() const { return up_columns(F()); }
  std::int64_t up_columns(std::int64_t ffn) const { return gated() ? 2 * ffn : ffn; }
  bool layernorm() const { return options.norm == NormKind::layernorm; }
  // Whether attention and the feed-forward layer have norms before them, and behind them.
  bool norms_before() const { return options.norm_placement != NormPlacement::behind; }
  bool norms_behind() const { return options.norm_placement != NormPlacement::before; }
  bool rope() const { return options.positions == PositionKind::rope; }
  // A layer's number, counted from 1; layers of multi-token prediction have the last one's.
  std::int64_t number_of(std::int64_t layer) const { return (layer < L() ? layer : L() - 1) + 1; }
  // Whether a layer rotates its queries and keys.
  bool rotates(std::int64_t layer) const {
    const std::int64_t number = number_of(layer);
    return rope() && (options.no_rope_every == 0 || number % options.no_rope_every != 0);
  }
  // Attention window of a layer; 0 = none.
  std::int64_t window(std::int64_t layer) const {
    const std::int64_t every = options.sliding_window_full_every;
    const bool full = layer < options.sliding_window_layer || (every > 0 && number_of(layer) % every == 0);
    return full ? 0 : options.sliding_window;
  }
  // Frequencies of rope: the layers with a window may have some of their own, the second ones.
  std::int64_t rotary_bases() const { return options.rope_window_theta > 0 ? 2 : 1; }
  // Whether queries are multiplied by a number that depends on their position.
  bool scales_queries() const { return options.query_position_scale > 0; }
  // Rotary tables: one for each of those frequencies, or for its keys and then its queries.
  std::int64_t rotary_tables() const { return rotary_bases() * (scales_queries() ? 2 : 1); }
  // The table of a layer's keys, and of its queries, where they have one of their own.
  std::int64_t rotary_table_of(std::int64_t layer, bool queries = false) const {
    const std::int64_t base = window(layer) > 0 ? rotary_bases() - 1 : 0;
    return scales_queries() ? 2 * base + (queries ? 1 : 0) : base;
  }

  // Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): queries and keys have heads of nope_dim + rope_dim
  // entries, values of value_dim. Without it a value's head is as wide as the others'.
  bool mla() const { return options.attention == AttentionKind::mla; }
  std::int64_t value_dim() const { return mla() ? options.value_dim : D(); }
  std::int64_t o_columns() const { return H() * value_dim(); }  // columns of attention's output, before its projection
  // Layers of gated DeltaNet (arXiv:2412.06464) in the place of attention, which those of multi-token prediction have:
  // the channels of their convolution, q, k and v of all heads; with them the gate z, and β's and g's inputs, the
  // columns of their projection; and the output's.
  bool linear(std::int64_t layer) const {
    const std::int64_t every = options.full_attention_interval;
    return every > 0 && layer < L() && number_of(layer) % every != 0;
  }
  std::int64_t linear_channels() const {
    return 2 * options.linear_key_heads * options.linear_key_dim + linear_values();
  }
  std::int64_t linear_values() const { return options.linear_value_heads * options.linear_value_dim; }
  std::int64_t linear_columns() const { return linear_channels() + linear_values() + 2 * options.linear_value_heads; }
  // Columns that a layer's output projection reads.
  std::int64_t mixed_columns(std::int64_t layer) const { return linear(layer) ? linear_values() : o_columns(); }
  // Entries of a head that rope rotates: its first ones, with mla the last ones.
  std::int64_t rotary_dim() const {
    return mla() ? options.rope_dim : static_cast<std::int64_t>(static_cast<double>(D()) * options.rope_fraction);
  }
  std::int64_t q_lora() const { return options.q_lora; }
  std::int64_t kv_lora() const { return options.kv_lora; }
  std::int64_t q_up_inputs() const { return q_lora() > 0 ? q_lora() : C(); }
  std::int64_t kv_down_columns() const { return kv_lora() + options.rope_dim; }
  std::int64_t kv_up_columns() const { return H() * (options.nope_dim + options.value_dim); }
  // Columns that tensor-parallel ranks gather for the up-projections: [input of q_up, kv latent, rope key].
  std::int64_t latent_columns() const { return q_up_inputs() + kv_down_columns(); }
  // The factor of scores before the softmax: 1 / sqrt(D or query_pre_attn_scalar), and with mla the square of yarn's
  // mscale_all_dim.
  double softmax_scale() const;

  // Mixture of experts. Layers L … L + mtp_depth − 1 belong to multi-token prediction: with the last
  // one's feed-forward part.
  std::int64_t E() const { return options.experts; }
  std::int64_t experts_per_token() const { return options.experts_per_token; }
  std::int64_t Fe() const { return options.expert_ffn; }         // of an expert
  std::int64_t Fs() const { return options.shared_expert_ffn; }  // of all shared experts together
  bool is_moe(std::int64_t layer) const;
  std::int64_t moe_layers() const;  // among the first L
};

// Fills in kv_heads, head_dim, value_dim, expert_ffn and router_groups_used; throws BadInput when a dimension is
// missing or impossible.
ModelSpec resolve_model(const ModelDeck& deck);

}  // namespace forge
