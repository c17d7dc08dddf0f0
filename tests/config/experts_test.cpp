#include "config/check_parts.hpp"
#include "config/family.hpp"
#include "config/router_score.hpp"
#include "support.hpp"

// What the keys of experts and of latent attention are held against.

namespace forge {
namespace {

using test::expect_bad_input;

ModelDeck moe_model() {
  ModelDeck m;
  m.layers = 4;
  m.width = 32;
  m.heads = 4;
  m.kv_heads = 2;
  m.ffn = 64;
  m.vocabulary = 256;
  m.experts = 12;
  m.experts_per_token = 3;
  return m;
}

ModelDeck mla_model() {
  ModelDeck m = moe_model();
  m.kv_heads = 0;
  m.attention = AttentionKind::mla;
  m.q_lora = 12;
  m.kv_lora = 8;
  m.nope_dim = 6;
  m.rope_dim = 4;
  return m;
}

template <class Change>
ModelDeck checked(ModelDeck m, Change&& change) {
  change(m);
  Report report;
  check_model(m, 16, report);
  report.throw_if_any("the deck");
  return m;
}

template <class Change>
void expect_refused(const ModelDeck& m, Change&& change, std::initializer_list<const char*> parts) {
  expect_bad_input([&] { checked(m, change); }, parts);
}

TEST(Experts, DerivedDimensions) {
  const ModelDeck m = checked(moe_model(), [](ModelDeck& d) { d.router_groups = 4; });
  EXPECT_EQ(m.expert_ffn, 64);
  EXPECT_EQ(m.router_groups_used, 4);
  EXPECT_EQ(checked(m, [](ModelDeck&) {}).router_groups_used, 4) << "a resolved model passes again";
}

TEST(Experts, CountsAndGroups) {
  for (const std::int64_t k : {0, 13})
    expect_refused(moe_model(), [&](ModelDeck& d) { d.experts_per_token = k; },
                   {"model.experts_per_token = ", "legal: 1 to model.experts = 12"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.experts = 100, d.experts_per_token = 65; },
                 {"model.experts_per_token = 65", "legal: 1 to 64"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.experts = 130, d.router_groups = 65; },
                 {"model.router_groups = 65", "at most 64"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.router_groups = 5; },
                 {"model.experts = 12 is no multiple of model.router_groups = 5", "4 or 6"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.router_groups = 4, d.router_groups_used = 5; },
                 {"model.router_groups_used = 5", "at most model.router_groups = 4"});
  expect_refused(moe_model(),
                 [](ModelDeck& d) { d.router_groups = 6, d.router_groups_used = 2, d.experts_per_token = 5; },
                 {"model.router_groups_used = 2 of 2 experts each", "model.experts_per_token = 5", "at least 3"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.router_groups = 12; }, {"top2_sum takes two", "at most 6", "max"});
  EXPECT_NO_THROW(checked(moe_model(), [](ModelDeck& d) {
    d.router_groups = 12, d.router_groups_used = 3, d.router_group_score = GroupScoreKind::max;
  }));
}

TEST(Experts, Layers) {
  expect_refused(moe_model(), [](ModelDeck& d) { d.first_dense_layers = 5; },
                 {"model.first_dense_layers = 5", "at most model.layers = 4"});
  expect_refused(moe_model(),
                 [](ModelDeck& d) {
                   d.dense_layers = {0, 4};
                 },
                 {"model.dense_layers has 4", "less than model.layers = 4"});
}

TEST(Experts, KeysWithoutEffectAreRefused) {
  ModelDeck dense = moe_model();
  dense.experts = dense.experts_per_token = 0;
  EXPECT_NO_THROW(checked(dense, [](ModelDeck&) {}));
  expect_refused(dense, [](ModelDeck& d) { d.experts_per_token = 2, d.forced_balance = true, d.moe_every = 2; },
                 {"3 errors", "model.experts_per_token = 2 has no effect without model.experts; legal: 0",
                  "model.forced_balance = true", "model.moe_every = 2"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.router_bias_rate = 0.1; }, {"without model.router_bias; legal: 0"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.shared_expert_gate = true; }, {"without model.shared_expert_ffn"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.router_group_score = GroupScoreKind::max; },
                 {"with model.router_groups = 1"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.capacity_drop = CapacityDrop::probability; },
                 {"without model.capacity_factor"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.mtp_loss_factor = 1; }, {"without model.mtp_depth"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.rope_dim = 4; }, {"with model.attention = standard; legal: 0"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.mlp_bias = true; },
                 {"model.mlp_bias = true", "model.expert_bias: true"});
  expect_refused(moe_model(), [](ModelDeck& d) { d.family = Family::gpt2, d.activation = Activation::gelu; },
                 {"model.experts = 12 with model.family = gpt2"});
}

TEST(LatentAttention, DerivedDimensions) {
  const ModelDeck m = checked(mla_model(), [](ModelDeck&) {});
  EXPECT_EQ(m.head_dim, 10);
  EXPECT_EQ(m.value_dim, 6);
  EXPECT_EQ(m.kv_heads, 4);
  EXPECT_NO_THROW(checked(m, [](ModelDeck&) {})) << "a resolved model passes again";
  EXPECT_NO_THROW(checked(mla_model(), [](ModelDeck& d) { d.q_lora = 0; }));
}

TEST(LatentAttention, Dimensions) {
  expect_refused(mla_model(), [](ModelDeck& d) { d.kv_lora = d.nope_dim = 0; },
                 {"model.kv_lora = 0 with model.attention = mla; legal: at least 1", "model.nope_dim = 0"});
  expect_refused(mla_model(), [](ModelDeck& d) { d.rope_dim = 5; }, {"model.rope_dim = 5", "4 or 6"});
  expect_refused(mla_model(), [](ModelDeck& d) { d.head_dim = 8; }, {"model.head_dim = 8", "= 10, or 0"});
  expect_refused(mla_model(), [](ModelDeck& d) { d.kv_heads = 2; }, {"model.kv_heads = 2", "model.heads = 4, or 0"});
  expect_refused(mla_model(), [](ModelDeck& d) { d.positions = PositionKind::learned, d.max_positions = 16; },
                 {"model.positions = learned with model.attention = mla"});
  expect_refused(mla_model(), [](ModelDeck& d) { d.qk_norm = d.qkv_bias = true, d.sliding_window = 4; },
                 {"model.qk_norm = true", "model.qkv_bias = true", "model.sliding_window = 4"});
}

}  // namespace
}  // namespace forge
