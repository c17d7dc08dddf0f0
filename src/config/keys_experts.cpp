#include "config/dispatch_words.hpp"
#include "config/key_bounds.hpp"
#include "config/key_builder.hpp"
#include "config/router_score.hpp"

namespace forge {

namespace {

using enum OnRestart;

using M = ModelDeck;
using Keys = SectionKeys<&Deck::model>;

constexpr std::int64_t most_experts = 65'536;

void add_layout(Keys& k) {
  k.integer<&M::experts>("experts", stays, 0, most_experts, "", "experts of a layer, E; 0 = dense layers only");
  k.integer<&M::experts_per_token>("experts_per_token", stays, 0, most_expert_choices, "",
                                   "experts that a token goes to; at least 1 with experts");
  k.integer<&M::expert_ffn>("expert_ffn", stays, 0, most_ffn, "", "inner width of an expert; 0 = ffn");
  k.integer<&M::shared_expert_ffn>("shared_expert_ffn", stays, 0, most_ffn, "",
                                   "inner width of the experts that every token goes to, all together; 0 = none");
  k.flag<&M::shared_expert_gate>("shared_expert_gate", stays,
                                 "the shared experts' output is multiplied by a sigmoid of the layer's input");
  k.flag<&M::expert_bias>("expert_bias", stays, "biases of the routed experts' projections");
  k.integer<&M::first_dense_layers>("first_dense_layers", stays, 0, most_layers, "",
                                    "so many first layers have no experts");
  k.integer<&M::moe_every>("moe_every", stays, 1, most_layers, "",
                           "of the other layers, those have experts whose number, counted from 1, is a multiple of "
                           "this");
  k.integers<&M::dense_layers>("dense_layers", stays, 0, most_layers - 1,
                               "layers, from 0, without experts in any case");
}

void add_router(Keys& k) {
  k.choice<&M::router_score>("router_score", stays, {router_score_words.begin(), router_score_words.end()},
                             router_score_doc);
  k.flag<&M::router_renormalise>("router_renormalise", stays, "divide a token's weights by their sum");
  k.number<&M::router_scale>("router_scale", stays, more_than(0), "factor of a token's weights, after renormalising");
  k.integer<&M::router_groups>("router_groups", stays, 1, most_router_groups, "",
                               "groups of neighbouring experts, of which a token uses only some; divides experts");
  k.integer<&M::router_groups_used>("router_groups_used", stays, 0, most_router_groups, "",
                                    "groups that a token uses; 0 = all");
  k.choice<&M::router_group_score>("router_group_score", stays, {"top2_sum", "max"},
                                   "a group's rank follows from: the sum of its two best scores, or the best");
  k.flag<&M::router_logit_bias>("router_logit_bias", stays, "a trained bias of the router's logits");
  k.flag<&M::router_bias>("router_bias", stays,
                          "a bias per expert is added to the scores that choose experts, and not to their weights");
  k.number<&M::router_bias_rate>("router_bias_rate", may_change, at_least(0),
                                 "how far a bias moves each step: up where an expert got less than the mean, down "
                                 "where it got more");
  k.number<&M::auxiliary_loss_coefficient>(
      "auxiliary_loss_coefficient", may_change, at_least(0),
      "adds this times E sum_i f_i P_i, summed over layers, to total_loss: f_i the share of "
      "assignments to expert i, P_i its mean probability; with model.hf the default is config.json's "
      "router_aux_loss_coef where output_router_logits is true");
  k.choice<&M::auxiliary_loss_scope>("auxiliary_loss_scope", may_change, {"sequence", "microbatch"},
                                     "tokens that f_i and P_i are taken over");
  k.number<&M::router_z_coefficient>("router_z_coefficient", may_change, at_least(0),
                                     "adds this times the mean over tokens, summed over layers, of the squared "
                                     "log-sum-exp of router logits to total_loss");
  k.number<&M::router_jitter>("router_jitter", may_change, from_below(0, 1),
                              "the router's input is multiplied by random numbers from 1 - this to 1 + this");
  k.flag<&M::forced_balance>("forced_balance", may_change,
                             "for benchmarks: tokens go to experts in turn, whatever the router says");
}

void add_dispatch(Keys& k) {
  k.number<&M::capacity_factor>(
      "capacity_factor", may_change, at_least(0),
      "an expert takes at most this times the balanced number of a sequence's tokens; 0 = all of them");
  k.choice<&M::capacity_drop>("capacity_drop", may_change, {"position", "probability"},
                              "which tokens a full expert drops: the last ones, or those it weighs least");
  k.choice<&M::dispatch>("dispatch", may_change, {dispatch_words.begin(), dispatch_words.end()},
                         "how rows come to their experts: each to the ranks that have them, once an expert, or in two "
                         "hops, once a node, where mesh.ep lies on nodes alike; or, for few ranks, all to all of them; "
                         "automatic = two_level where it is legal, else all_to_all");
  k.number<&M::dispatch_rows>("dispatch_rows", may_change, more_than(0),
                              "rows of a round of dispatch, as a multiple of the balanced number; a rank that gets "
                              "more takes more rounds");
}

}  // namespace

void add_latent_attention_keys(Keys& k) {
  k.choice<&M::attention>("attention", stays, {"standard", "mla"},
                          "queries, keys and values from the residual stream, or from latents (multi-head latent "
                          "attention)");
  k.integer<&M::q_lora>("q_lora", stays, 0, most_width, "", "mla: width of the queries' latent; 0 = none");
  k.integer<&M::kv_lora>("kv_lora", stays, 0, most_width, "", "mla: width of the latent of keys and values");
  k.integer<&M::nope_dim>("nope_dim", stays, 0, most_heads, "",
                          "mla: width of a query or key head's part without rotation");
  k.integer<&M::rope_dim>("rope_dim", stays, 0, most_heads, "",
                          "mla: width of the part with rotation, even; all heads share the key's");
  k.integer<&M::value_dim>("value_dim", stays, 0, most_heads, "", "mla: width of a value head; 0 = nope_dim");
  k.flag<&M::rope_interleave>("rope_interleave", stays, "mla: rope rotates neighbours, not the two halves");
  k.number<&M::latent_norm_epsilon>("latent_norm_epsilon", stays, more_than(0),
                                    "mla: added to the mean square in the norms of the latents");
}

void add_linear_attention_keys(Keys& k) {
  k.flag<&M::attention_output_gate>(
      "attention_output_gate", stays,
      "attention's output is multiplied by the sigmoid of a gate, whose rows stand behind "
      "each head's in the queries' projection");
  k.integer<&M::full_attention_interval>(
      "full_attention_interval", stays, 0, most_layers, "",
      "layers whose number, counted from 1, is a multiple of this have attention, the others gated DeltaNet "
      "(arXiv:2412.06464); 0 = all have attention");
  k.integer<&M::linear_key_heads>("linear_key_heads", stays, 0, most_heads, "",
                                  "gated DeltaNet: heads of queries and keys");
  k.integer<&M::linear_value_heads>("linear_value_heads", stays, 0, most_heads, "",
                                    "gated DeltaNet: heads of values, a multiple of linear_key_heads");
  k.integer<&M::linear_key_dim>("linear_key_dim", stays, 0, most_heads, "",
                                "gated DeltaNet: width of a query or key head");
  k.integer<&M::linear_value_dim>("linear_value_dim", stays, 0, most_heads, "",
                                  "gated DeltaNet: width of a value head");
  k.integer<&M::linear_conv_taps>("linear_conv_taps", stays, 1, most_taps, "tokens",
                                  "gated DeltaNet: length of the causal convolution of queries, keys and values");
}

void add_expert_keys(Keys& k) {
  add_layout(k);
  add_router(k);
  add_dispatch(k);
  k.integer<&M::mtp_depth>("mtp_depth", stays, 0, static_cast<std::int64_t>(most_mtp_depths), "",
                           "further tokens that extra layers predict (multi-token prediction)");
  k.number<&M::mtp_loss_factor>("mtp_loss_factor", may_change, at_least(0),
                                "adds this times the mean loss over the depths to total_loss");
}

}  // namespace forge
