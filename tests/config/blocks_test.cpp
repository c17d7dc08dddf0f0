#include "config/family.hpp"
#include "small_deck.hpp"

// The keys of a block's norms, rotation and window are held against each other.

namespace forge {
namespace {

using test::checked;
using test::expect_refused;

TEST(Check, PartsWithoutRotation) {
  EXPECT_NO_THROW(checked([](Deck& d) { d.model.rope_fraction = 0.5, d.model.no_rope_every = 2; }));
  expect_refused([](Deck& d) { d.model.rope_fraction = 1.5; }, {"model.rope_fraction = 1.5", "at most 1"});
  expect_refused([](Deck& d) { d.model.head_dim = 10, d.model.rope_fraction = 0.5; },
                 {"model.rope_fraction = 0.5 of model.head_dim = 10 is 5 entries", "an even number, as with 0.6"});
  expect_refused([](Deck& d) { d.model.head_dim = 10, d.model.rope_fraction = 0.05; }, {"is 0 entries", "with 0.2"});
  expect_refused([](Deck& d) { d.model.no_rope_every = 3; }, {"model.no_rope_every = 3", "model.layers = 2"});
  expect_refused([](Deck& d) { d.model.qk_norm_whole = true; }, {"model.qk_norm_whole = true has no effect"});
  const auto learned = [](Deck& d) {
    d.model.positions = PositionKind::learned, d.model.max_positions = 4096;
    d.model.rope_fraction = 0.5, d.model.no_rope_every = 1;
  };
  expect_refused(learned, {"model.rope_fraction = 0.5 has no effect", "model.no_rope_every = 1 has no effect"});
}

TEST(Check, DivisorsOfLongRope) {
  const auto longrope = [](std::size_t short_ones, std::size_t long_ones, std::int64_t original) {
    return [=](Deck& d) {
      d.model.head_dim = 8;
      d.model.rope_scaling = RopeScaling::longrope;
      d.model.rope_factor = 4;
      d.model.rope_original_positions = original;
      d.model.rope_short_factor.assign(short_ones, 1.5);
      d.model.rope_long_factor.assign(long_ones, 2.5);
    };
  };
  EXPECT_EQ(checked(longrope(4, 4, 8)).model.rope_long_factor.size(), 4u);
  for (const auto& [change, word] :
       {std::pair{+[](Deck& d) { d.data.tasks = {"arc.jsonl"}, d.train.validate_every_steps = 1; }, "data.tasks with"},
        {+[](Deck& d) { d.data.document_end_token = 3, d.data.positions = PositionOrigin::document; },
         "data.positions = document with"},
        {+[](Deck& d) { d.data.phases = {{.from_step = 2, .weights = {}, .sequence_tokens = 8}}; },
         "data.phases of shorter"}})
    expect_refused(
        [&](Deck& d) {
          longrope(4, 4, 8)(d);
          change(d);
        },
        {word, "model.rope_scaling = longrope and train.sequence_tokens", "model.rope_original_positions = 8, or"});
  expect_refused(longrope(3, 4, 8), {"model.rope_short_factor has 3 numbers; legal: 4, half as many"});
  expect_refused(longrope(4, 0, 8), {"model.rope_long_factor has 0 numbers; legal: 4"});
  expect_refused(longrope(4, 4, 0), {"rope_original_positions = 0", "longrope"});
  expect_refused(longrope(4, 4, 1), {"rope_original_positions = 1", "legal: at least 2"});
  expect_refused([](Deck& d) { d.model.rope_short_factor = {1}; },
                 {"model.rope_short_factor", "no effect without model.rope_scaling = longrope"});
  expect_refused(
      [&](Deck& d) {
        longrope(4, 4, 8)(d);
        d.model.rope_long_factor[2] = 0;
      },
      {"model.rope_long_factor", "list of numbers, > 0"});
}

TEST(Check, NormsBefore) {
  const auto both = [](auto change) {
    return [=](Deck& d) {
      d.model.norm_placement = NormPlacement::both;
      change(d.model);
    };
  };
  EXPECT_NO_THROW(checked(both([](ModelDeck& m) { m.activation = Activation::geglu; })));
  expect_refused(both([](ModelDeck& m) { m.experts = 4, m.experts_per_token = 2; }),
                 {"model.norm_placement = both with model.experts = 4"});
  expect_refused(both([](ModelDeck& m) {
                   m.family = Family::gpt2;
                   m.activation = Activation::geglu;
                 }),
                 {"model.norm_placement = both with model.family = gpt2",
                  "model.activation = geglu with model.family = gpt2, whose checkpoints have no gate"});
  expect_refused(
      [](Deck& d) {
        d.model.experts = 4, d.model.experts_per_token = 2;
        d.model.activation = Activation::geglu;
      },
      {"model.activation = geglu with model.experts; legal: swiglu | clamped_swiglu"});
}

TEST(Check, SinksAndBiasesOfExperts) {
  const auto experts = [](auto change) {
    return [=](Deck& d) {
      d.model.experts = 4, d.model.experts_per_token = 2;
      d.model.attention_sinks = d.model.expert_bias = d.model.router_logit_bias = true;
      d.model.activation = Activation::clamped_swiglu;
      d.model.activation_limit = 5;
      change(d);
    };
  };
  EXPECT_NO_THROW(checked(experts([](Deck&) {})));
  expect_refused(experts([](Deck& d) { d.model.experts = d.model.experts_per_token = 0; }),
                 {"model.expert_bias = true has no effect without model.experts; legal: false",
                  "model.router_logit_bias = true has no effect without model.experts"});
  expect_refused(experts([](Deck& d) { d.model.activation = Activation::swiglu; }),
                 {"model.activation_limit = 5 has no effect without model.activation = clamped_swiglu; legal: 7"});
  expect_refused(experts([](Deck& d) { d.model.mlp_bias = true; }),
                 {"model.mlp_bias = true with model.experts: not available; legal: false, or model.expert_bias: true"});
  expect_refused(
      [](Deck& d) {
        d.model.attention_sinks = true;
        d.model.attention = AttentionKind::mla;
        d.model.kv_lora = d.model.nope_dim = d.model.rope_dim = 4;
      },
      {"model.attention_sinks = true has no effect with model.attention = mla"});
}

TEST(Check, QueriesByPosition) {
  const auto scaled = [](auto change) {
    return [=](Deck& d) {
      d.model.query_position_scale = 0.5;
      d.model.rope_scaling = RopeScaling::yarn;
      d.model.rope_original_positions = 8;
      change(d.model);
    };
  };
  EXPECT_NO_THROW(checked(scaled([](ModelDeck& m) { m.qk_norm = m.qk_norm_whole = true; })));
  expect_refused(scaled([](ModelDeck& m) { m.rope_scaling = RopeScaling::linear; }),
                 {"model.query_position_scale = 0.5 without model.rope_original_positions", "llama3 | yarn"});
  expect_refused(scaled([](ModelDeck& m) { m.qk_norm = true; }),
                 {"model.query_position_scale = 0.5 with model.qk_norm = true: not available; legal: 0"});
  expect_refused(scaled([](ModelDeck& m) { m.rope_fraction = 0.5, m.no_rope_every = 1; }),
                 {"with model.rope_fraction below 1", "with model.no_rope_every"});
  expect_refused(scaled([](ModelDeck& m) {
                   m.attention = AttentionKind::mla;
                   m.kv_lora = m.nope_dim = m.rope_dim = 4;
                   m.query_pre_attn_scalar = 3;
                 }),
                 {"model.query_position_scale", "model.query_pre_attn_scalar", "with model.attention = mla"});
}

TEST(Check, NormsBehind) {
  const auto behind = [](auto change) {
    return [=](Deck& d) {
      d.model.norm_placement = NormPlacement::behind;
      change(d.model);
    };
  };
  EXPECT_NO_THROW(checked(behind([](ModelDeck&) {})));
  expect_refused(behind([](ModelDeck& m) { m.experts = 4, m.experts_per_token = 2; }),
                 {"model.norm_placement = behind with model.experts = 4", "legal: before, or model.experts: 0"});
  expect_refused(behind([](ModelDeck& m) {
                   m.attention = AttentionKind::mla;
                   m.kv_lora = m.nope_dim = m.rope_dim = 4;
                 }),
                 {"model.norm_placement", "with model.attention = mla"});
  expect_refused(behind([](ModelDeck& m) {
                   m.family = Family::gpt2;
                   m.activation = Activation::gelu;
                 }),
                 {"model.norm_placement = behind with model.family = gpt2"});
}

TEST(Check, LayersWithoutTheWindow) {
  const auto every = [](std::int64_t window, std::int64_t full_every, double theta = 0) {
    return [=](Deck& d) {
      d.model.layers = 4;
      d.model.sliding_window = window;
      d.model.sliding_window_full_every = full_every;
      d.model.rope_window_theta = theta;
    };
  };
  EXPECT_NO_THROW(checked(every(5, 2, 100)));
  expect_refused(every(0, 2), {"model.sliding_window_full_every = 2 has no effect without model.sliding_window"});
  expect_refused(every(5, 1), {"model.sliding_window_full_every = 1 leaves no layer the window", "legal: 0, or 2 to"});
  expect_refused(every(5, 5), {"model.sliding_window_full_every = 5 has no effect", "model.layers = 4"});
  expect_refused(every(0, 0, 100), {"model.rope_window_theta = 100 has no effect without model.sliding_window"});
}

}  // namespace
}  // namespace forge
