#include "config/family.hpp"
#include "config/key_bounds.hpp"
#include "config/key_builder.hpp"

namespace forge {

namespace {

using enum OnRestart;

using M = ModelDeck;
using Keys = SectionKeys<&Deck::model>;

void add_dimensions(Keys& k) {
  k.path<&M::hf>(
      "hf", may_change,
      "Hugging Face directory whose config.json gives the model; then the other keys of this section may only have "
      "its values, except load_weights, tokenizer, dropout, soft caps, initial_std, residual_scaling, auxiliary "
      "losses, router jitter and bias rate, balance, capacity, dispatch, multi-token prediction, and vocabulary with "
      "new_rows");
  k.flag<&M::load_weights>("load_weights", may_change,
                           "start from the safetensors files of model.hf, not from initial values; where the deck "
                           "doesn't say it, true if that directory has weights and checkpoint.model_from is empty");
  k.path<&M::tokenizer>("tokenizer", may_change,
                        "directory or file of the tokenizer whose ids the data has, for prompts, samples and bits per "
                        "byte; default: the one of model.hf, if any");
  k.choice<&M::family>("family", stays, {family_words.begin(), family_words.end()},
                       "whose checkpoint names the tensors have; it sets no other key");
  k.integer<&M::layers>("layers", stays, 1, most_layers, "", "blocks, L").required = Required::dimension;
  k.integer<&M::width>("width", stays, 1, most_width, "", "width of the residual stream, C").required =
      Required::dimension;
  k.integer<&M::heads>("heads", stays, 1, most_heads, "", "attention heads, H").required = Required::dimension;
  k.integer<&M::kv_heads>("kv_heads", stays, 0, most_heads, "", "key and value heads, K; divides heads; 0 = heads");
  k.integer<&M::head_dim>("head_dim", stays, 0, most_heads, "",
                          "width of a head, D; even with rope; 0 = width / heads");
  k.integer<&M::ffn>("ffn", stays, 1, most_ffn, "", "inner width of the feed-forward layer, F").required =
      Required::dimension;
  k.integer<&M::vocabulary>("vocabulary", stays, 1, most_vocabulary, "", "token ids, V").required = Required::dimension;
  k.choice<&M::new_rows>(
      "new_rows", may_change, {"none", "mean", "noise"},
      "for a vocabulary larger than model.hf's, whose weights are loaded: rows of embedding and head that the "
      "files lack start at the mean of the files' rows, or at this and numbers of deviation initial_std, drawn by row "
      "and column (noise)");
}

void add_layers(Keys& k) {
  k.choice<&M::norm>("norm", stays, {"rmsnorm", "layernorm"}, "normalisation; layernorm has a bias");
  k.choice<&M::norm_placement>("norm_placement", stays, {"before", "behind", "both"},
                               "norms of a block: of the inputs of attention and the feed-forward layer, of their "
                               "results before these join the residual stream, or of both");
  k.number<&M::norm_epsilon>("norm_epsilon", stays, more_than(0), "added to the variance or mean square in norms");
  k.choice<&M::activation>(
      "activation", stays, {"swiglu", "geglu", "clamped_swiglu", "gelu", "gelu_tanh", "relu2"},
      "of the feed-forward layer: gated SiLU, gated GELU (tanh approximation), gpt-oss's gate x sigmoid(alpha x) times "
      "up + 1 with limits for both, GELU (exact), GELU (tanh approximation), squared ReLU");
  k.number<&M::activation_limit>(
      "activation_limit", stays, more_than(0),
      "clamped_swiglu: gates above it count as it, ups as the nearest number from -it to it");
  k.number<&M::activation_alpha>("activation_alpha", stays, more_than(0), "clamped_swiglu: factor in the sigmoid");
  k.choice<&M::positions>("positions", stays, {"rope", "learned"}, "rotary positions or a learned table");
  k.integer<&M::max_positions>("max_positions", stays, 0, most_positions, "tokens",
                               "rows of the learned table, at least train.sequence_tokens; with rope, how far "
                               "`generate` goes, 0 = any length");
}

void add_rope(Keys& k) {
  k.number<&M::rope_theta>("rope_theta", stays, more_than(0), "base of the rotary wavelengths; more than 1 with yarn");
  k.choice<&M::rope_scaling>("rope_scaling", stays, {"none", "linear", "llama3", "yarn", "longrope"},
                             "how rotary wavelengths are stretched for contexts longer than the original one");
  k.number<&M::rope_factor>("rope_factor", stays, more_than(0), "stretch; needs rope_scaling");
  k.integer<&M::rope_original_positions>("rope_original_positions", stays, 0, most_positions, "tokens",
                                         "context before stretching; needed by llama3, yarn and longrope");
  k.number<&M::rope_low_frequency_factor>("rope_low_frequency_factor", stays, more_than(0),
                                          "llama3: wavelengths above original / this are stretched in full");
  k.number<&M::rope_high_frequency_factor>("rope_high_frequency_factor", stays, more_than(0),
                                           "llama3: wavelengths below original / this stay; more than the low factor");
  k.number<&M::rope_beta_fast>("rope_beta_fast", stays, more_than(0), "yarn: rotations above which a dimension stays");
  k.number<&M::rope_beta_slow>("rope_beta_slow", stays, more_than(0),
                               "yarn: rotations below which it is stretched in full");
  k.number<&M::rope_attention_factor>("rope_attention_factor", stays, at_least(0),
                                      "yarn and longrope: factor of sine and cosine; 0 = 0.1 ln(rope_factor) + 1, or "
                                      "sqrt(1 + ln(rope_factor) / ln(rope_original_positions))");
  k.number<&M::rope_mscale>("rope_mscale", stays, at_least(0), "yarn, as in DeepSeek's config.json; 0 = absent");
  k.number<&M::rope_mscale_all_dim>("rope_mscale_all_dim", stays, at_least(0), "yarn, as rope_mscale; 0 = absent");
  k.numbers<&M::rope_short_factor>("rope_short_factor", stays, 0,
                                   "longrope: divisors of the rotary frequencies, from the first on, half as many as "
                                   "rope rotates entries of a head");
  k.numbers<&M::rope_long_factor>("rope_long_factor", stays, 0,
                                  "longrope: those of sequences of more than rope_original_positions tokens");
  k.flag<&M::rope_truncate>("rope_truncate", stays, "yarn: round the correction range to whole dimensions");
  k.number<&M::rope_fraction>("rope_fraction", stays, more_than(0),
                              "rope rotates so much of a head, at most 1: its first entries, an even number of them");
  k.integer<&M::no_rope_every>("no_rope_every", stays, 0, most_layers, "",
                               "layers whose number, counted from 1, is a multiple of this have no positions; 0 = "
                               "every layer has them");
  k.number<&M::rope_window_theta>("rope_window_theta", stays, at_least(0),
                                  "rope_theta of the layers with a window, whose wavelengths are not stretched; 0 = as "
                                  "in the other layers");
  k.number<&M::query_position_scale>("query_position_scale", stays, at_least(0),
                                     "b: queries are multiplied by 1 + b ln(1 + floor(position / "
                                     "rope_original_positions)), as in Llama 4; 0 = they are not");
}

void add_options(Keys& k) {
  k.flag<&M::qk_norm>("qk_norm", stays, "RMSNorm of every query and key head before the rotation");
  k.flag<&M::qk_norm_whole>("qk_norm_whole", stays,
                            "qk_norm goes over all query heads together, and over all key heads");
  k.number<&M::query_pre_attn_scalar>("query_pre_attn_scalar", stays, at_least(0),
                                      "attention's scores are divided by its square root; 0 = head_dim");
  k.number<&M::attention_soft_cap>("attention_soft_cap", stays, at_least(0),
                                   "c: scaled attention scores s become c tanh(s / c) before the softmax; 0 = none");
  k.flag<&M::attention_sinks>("attention_sinks", stays,
                              "the sum of each head's softmax has a term more, the exponential of a learned number");
  k.number<&M::logit_soft_cap>("logit_soft_cap", stays, at_least(0),
                               "c: the head's logits x become c tanh(x / c); 0 = none");
  k.flag<&M::qkv_bias>("qkv_bias", stays, "biases of the query, key and value projections");
  k.flag<&M::attention_out_bias>("attention_out_bias", stays, "bias of attention's output projection");
  k.flag<&M::mlp_bias>("mlp_bias", stays, "biases of the feed-forward projections");
  k.integer<&M::sliding_window>("sliding_window", stays, 0, most_positions, "tokens",
                                "a token sees itself and the sliding_window - 1 tokens before it; 0 = all before it");
  k.integer<&M::sliding_window_layer>("sliding_window_layer", stays, 0, most_layers, "",
                                      "first layer, from 0, with the window; needs sliding_window");
  k.integer<&M::sliding_window_full_every>("sliding_window_full_every", stays, 0, most_layers, "",
                                           "layers whose number, counted from 1, is a multiple of this have no "
                                           "window; 0 = none of them; needs sliding_window");
  k.number<&M::embedding_scale>(
      "embedding_scale", stays, more_than(0),
      "rows of the embedding table are multiplied by it where they enter the residual stream");
  k.flag<&M::tied_embeddings>("tied_embeddings", stays, "the head uses the embedding table");
  k.number<&M::dropout>("dropout", may_change, from_below(0, 1),
                        "probability, after the embedding, in attention and before each residual sum");
  k.number<&M::initial_std>("initial_std", may_change, at_least(0),
                            "standard deviation of initial matrices and tables");
  k.flag<&M::residual_scaling>("residual_scaling", may_change,
                               "projections into the residual stream start at initial_std / sqrt(2 layers)");
}

}  // namespace

void add_model_keys(std::vector<Key>& keys) {
  Keys k("model", keys);
  add_dimensions(k);
  add_layers(k);
  add_rope(k);
  add_options(k);
  add_latent_attention_keys(k);
  add_linear_attention_keys(k);
  add_expert_keys(k);
}

}  // namespace forge
