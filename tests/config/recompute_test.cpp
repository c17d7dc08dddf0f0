#include "config/read.hpp"
#include "small_deck.hpp"

// train.recompute: a word or a list of parts, which the model has.

namespace forge {
namespace {

using test::checked;
using test::expect_refused;

TEST(Check, BlocksRecomputedWhole) {
  EXPECT_EQ(checked([](Deck& d) { d.train.recompute_full_layers = d.model.layers; }).train.recompute, Recompute::none);
  expect_refused([](Deck& d) { d.train.recompute_full_layers = d.model.layers + 1; },
                 {"train.recompute_full_layers = 3", "the largest stage has 2 layers", "0 to 2"});
  expect_refused([](Deck& d) { d.train.recompute_full_layers = 1, d.train.recompute = Recompute::full; },
                 {"train.recompute_full_layers = 1", "train.recompute = full", "legal: 0"});
}

TEST(Check, PartsThatTheModelHas) {
  const auto named = [](unsigned parts) { return [parts](Deck& d) { d.train.recompute = {parts}; }; };
  EXPECT_EQ(checked(named(Recompute::norms)).train.recompute, (Recompute{Recompute::norms}));
  expect_refused(named(Recompute::norms | Recompute::expert_activations),
                 {"train.recompute = [norms, expert_activations]: the model has no [expert_activations]",
                  "legal: none | selective | full | list of norms, activations"});
  expect_refused(named(Recompute::latent.parts), {"train.recompute = latent without model.attention = mla"});
}

Recompute recompute_of(const std::string& value) {
  return read_deck("train: {recompute: " + value + "}", "deck.yaml",
                   {"model.layers=2", "model.width=8", "model.heads=2", "model.ffn=8", "model.vocabulary=10"},
                   Needs::model_only)
      .train.recompute;
}

TEST(Recompute, IsAWordOrAListOfParts) {
  EXPECT_EQ(recompute_of("none"), Recompute::none);
  EXPECT_EQ(recompute_of("[]"), Recompute::none);
  EXPECT_EQ(recompute_of("selective"), Recompute::selective);
  EXPECT_EQ(recompute_of("full"), Recompute::full);
  EXPECT_EQ(recompute_of("[activations]"), (Recompute{Recompute::activations}));
  EXPECT_EQ(recompute_of("[activations, norms, activations]"), (Recompute{Recompute::norms | Recompute::activations}));
  for (const char* wrong : {"norms", "[full]", "[norms, {a: 1}]", "[[norms]]", "{norms: true}", "3", "[norms, 1]"})
    test::expect_bad_input([&] { recompute_of(wrong); },
                           {"train.recompute", "list of norms, activations, expert_activations"});
  test::expect_bad_input([&] { recompute_of("norms"); }, {"as in [norms]"});
}

}  // namespace
}  // namespace forge
