#include "config/fp8_recipe.hpp"
#include "small_deck.hpp"

// What the keys of FP8 are held against.

namespace forge {
namespace {

using test::checked;
using test::expect_refused;

TEST(Check, Fp8) {
  const auto deck = [](auto change) {
    return [=](Deck& d) {
      d.train.precision = PrecisionName::fp8;
      change(d.train);
    };
  };
  EXPECT_NO_THROW(checked(deck([](TrainDeck& t) { t.fp8_recipe = Fp8Recipe::block; })));
  EXPECT_NO_THROW(checked(deck([](TrainDeck& t) { t.fp8_recipe = Fp8Recipe::delayed, t.fp8_history = 2; })));
  expect_refused(deck([](TrainDeck& t) { t.fp8_history = 2; }),
                 {"train.fp8_history = 2 with a train.fp8_recipe that has no history", "legal: 16", "delayed"});
  expect_refused([](Deck& d) { d.train.fp8_recipe = Fp8Recipe::row; },
                 {"train.fp8_recipe = row without train.precision = fp8", "current"});
  expect_refused(deck([](TrainDeck& t) { t.fp8_first_layers_bf16 = t.fp8_last_layers_bf16 = 60; }),
                 {"train.fp8_first_layers_bf16 = 60 + train.fp8_last_layers_bf16 = 60 leave none"});
  expect_refused(deck([](TrainDeck& t) { t.fp8_transposed = true; }),
                 {"train.fp8_transposed = true with train.fp8_recipe = current", "false, or fp8_recipe: block"});
  expect_refused(
      [&](Deck& d) {
        deck([](TrainDeck& t) { t.fp8_recipe = Fp8Recipe::block, t.fp8_transposed = true; })(d);
        d.mesh.cp = 2, d.train.sequence_tokens = 640;
      },
      {"train.sequence_tokens = 640 is no multiple of 2 x mesh.cp = 2 x 128", "512 or 1024; or cp 1"}, 2);
  const auto gather = [&](auto change) {
    return deck([=](TrainDeck& t) {
      t.fp8_gather = true, t.zero_stage = 3;
      change(t);
    });
  };
  EXPECT_NO_THROW(checked(gather([](TrainDeck&) {})));
  expect_refused(gather([](TrainDeck& t) { t.zero_stage = 2; }),
                 {"train.fp8_gather = true with train.zero_stage = 2", "false, or zero_stage 3"});
  expect_refused(gather([](TrainDeck& t) { t.gather = GatherPolicy::step; }),
                 {"train.fp8_gather = true with train.gather = step", "gather: microbatch"});
  expect_refused(gather([](TrainDeck& t) { t.fp8_recipe = Fp8Recipe::row; }),
                 {"train.fp8_gather = true with train.fp8_recipe = row", "current | block | delayed"});
  expect_refused([](Deck& d) { d.train.fp8_gather = true, d.train.zero_stage = 3; },
                 {"train.fp8_gather = true without train.precision = fp8", "false"});
  const auto dispatch = [](auto change) {
    return [=](Deck& d) {
      d.train.precision = PrecisionName::fp8;
      d.train.fp8_experts = d.train.fp8_dispatch = true;
      d.model.experts = 4, d.model.experts_per_token = 2;
      change(d);
    };
  };
  EXPECT_NO_THROW(checked(dispatch([](Deck&) {})));
  EXPECT_NO_THROW(checked(dispatch([](Deck& d) { d.mesh.ep = 2; }), 2));
  expect_refused(dispatch([](Deck& d) { d.train.fp8_experts = false; }),
                 {"train.fp8_dispatch = true with train.fp8_experts = false", "legal: false, or fp8_experts: true"});
  expect_refused(
      dispatch([](Deck& d) { d.train.fp8_scale = Fp8Scale::exact; }),
      {"train.fp8_dispatch = true with train.fp8_scale = exact", "legal: false, or fp8_scale: power_of_two"});
  expect_refused(dispatch([](Deck& d) { d.model.width = 2, d.model.heads = 1, d.model.kv_heads = 1; }),
                 {"train.fp8_dispatch = true with model.width = 2", "a width from 4"});
  expect_refused(dispatch([](Deck& d) { d.train.precision = PrecisionName::bf16; }),
                 {"train.fp8_dispatch = true without train.precision = fp8", "legal: false"});
  expect_refused(deck([](TrainDeck& t) { t.fp8_experts = true; }),
                 {"train.fp8_experts = true with model.experts = 0", "false"});
}

}  // namespace
}  // namespace forge
