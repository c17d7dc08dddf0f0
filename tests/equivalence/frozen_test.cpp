#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "config/schedule_name.hpp"
#include "core/error.hpp"
#include "cover.hpp"
#include "models.hpp"
#include "run_threads.hpp"

// train.frozen: units without gradients, on any layout.

namespace forge::test {
namespace {

constexpr std::int64_t steps = 10;

// Of a dense model: what lies below, which has no backward then; blocks between others; all but the head; the tables.
// With experts: these alone, and all but these.
std::vector<std::vector<std::string>> choices_of(const Deck& deck) {
  const std::string head = deck.model.tied_embeddings ? "embedding.tokens" : "head.output";
  std::vector<std::vector<std::string>> choices{
      {"embedding.*", "layers.0.*", "layers.1.*"}, {"layers.1.*", "layers.3.*"}, {"layers.*"}, {head}};
  if (deck.model.experts == 0) return choices;
  return {{"layers.*.experts.*"},
          {"layers.*.attention.*", "layers.*.norm*", "layers.*.router", "layers.*.shared.*", "layers.*.gate",
           "layers.*.up", "layers.*.down", "layers.*.mlp.*", "embedding.*"}};
}

// Patterns that match nothing of the model are left out.
std::vector<std::string> present(const Deck& deck, std::vector<std::string> patterns) {
  std::erase_if(patterns, [&](const std::string& pattern) {
    Deck alone = one_rank(deck);
    alone.train.frozen = {pattern};
    try {
      make_setup(alone);
    } catch (const BadInput& error) {
      return std::string(error.what()).find("matches no tensor") != std::string::npos;
    }
    return false;
  });
  return patterns;
}

std::vector<LayoutCase> cases() {
  std::vector<LayoutCase> all;
  std::size_t n = 0;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    auto drawn = drawn_layouts(ranks, 81);
    const auto experts = drawn_moe_layouts(ranks, 83);
    drawn.insert(drawn.end(), experts.begin(), experts.end());
    for (LayoutCase& c : drawn) {
      Deck deck = with_training(c.deck, steps);
      const auto choices = choices_of(deck);
      deck.train.frozen = choices[n++ % choices.size()];
      all.push_back({c.name, deck});
    }
  }
  return all;
}

TEST(Frozen, EqualsOneRank) {
  References references;
  const auto check = [&](const LayoutCase& c) {
    Deck deck = c.deck;
    deck.train.frozen = present(deck, deck.train.frozen);
    return equals_one_rank(deck, references, steps, 1e-10);
  };
  const auto all = cases();
  EXPECT_GE(all.size(), 180u);
  const auto some = thinned(all, 12);
  EXPECT_EQ(failures_of(some, some.size(), check), "");
}

// Stages whose layers are frozen, or that have none: nothing is computed backward there.
TEST(Frozen, StagesWithoutSlopesEqualOneRank) {
  std::vector<LayoutCase> cases;
  for (const char* split : {"E|t*2|t|t|tL", "E|t|t|t*3|L", "Et|t|t|t*2|L", "E||t*2|t*2|tL"})
    for (const bool adapters : {false, true}) {
      Deck deck = with_training(test_models()[0].deck, 2);
      deck.mesh.pp = 5;
      deck.schedule.split = split;
      deck.schedule.name = adapters ? ScheduleName::gpipe : ScheduleName::one_f_one_b;
      if (adapters)
        deck.model.adapter.name = AdapterName::lora;
      else
        deck.train.frozen = {"embedding.*", "layers.0.*", "layers.1.*"};
      cases.push_back({split, deck});
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 2, 1e-10); };
  EXPECT_EQ(failures_of(cases, 8, check), "");
}

// Products of frozen matrices in FP8, too.
TEST(Frozen, InFp8EqualsOneRank) {
  References references;
  const auto check = [&](const LayoutCase& c) {
    Deck deck = c.deck;
    deck.train.frozen = present(deck, deck.train.frozen);
    deck.train.precision = PrecisionName::fp8;
    deck.train.fp8_recipe = deck.train.zero_stage % 2 ? Fp8Recipe::delayed : Fp8Recipe::current;
    deck.train.fp8_carrier = Fp8Carrier::fp64;
    return equals_one_rank(deck, references, 4, 1e-9);
  };
  std::vector<LayoutCase> all = cases();
  for (LayoutCase& c : all) c.deck.train.steps = 4;
  const auto some = thinned(all, 30);
  EXPECT_EQ(failures_of(some, some.size(), check), "");
}

// What is trained has the gradients that it has where all is trained, to the last bit; what is frozen stays.
TEST(Frozen, LeavesOtherGradientsAsTheyAre) {
  const std::vector<TestModel> dense = test_models(), experts = moe_models();
  const std::vector<TestModel> models{dense[0], dense[1], dense[4], experts[0], experts[3]};
  for (const TestModel& model : models)
    for (const auto& patterns : choices_of(model.deck)) {
      Deck all = one_rank(with_training(model.deck, 2));
      all.optimizer.clip_norm = 0;
      ASSERT_EQ(illegality(all), "") << model.name;
      Deck some = all;
      some.train.frozen = present(all, patterns);
      RunOptions options;
      options.train_steps = 2;
      const LayoutResult full = run_threads(all, options), part = run_threads(some, options);
      EXPECT_EQ(part.problem, "") << model.name;
      EXPECT_LT(part.gradients.size(), full.gradients.size()) << model.name;
      EXPECT_FALSE(part.gradients.empty()) << model.name;
      for (const auto& [name, values] : part.gradients)
        EXPECT_EQ(values, full.gradients.at(name)) << model.name << name;
      const Tensors start = initial_tensors(some);
      for (const auto& [name, values] : part.parameters) {
        if (part.gradients.contains(name)) continue;
        EXPECT_EQ(values, start.at(name)) << model.name << name;
      }
    }
}

std::string refusal(const std::vector<std::string>& patterns) {
  Deck deck = one_rank(test_models()[0].deck);
  deck.train.frozen = patterns;
  try {
    make_setup(deck);
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST(Frozen, RefusesPartsOfUnits) {
  EXPECT_EQ(refusal({"layers.2.*"}), "");
  EXPECT_NE(refusal({"layers.2.attention.*"}).find("units are frozen whole"), std::string::npos);
  EXPECT_NE(refusal({"model.layers.*.mlp.*"}).find("units are frozen whole"), std::string::npos);
  EXPECT_NE(refusal({"layers.0.*", "layers.9.*"}).find("train.frozen[1] = layers.9.* matches no tensor"),
            std::string::npos);
  EXPECT_NE(refusal({"*"}).find("nothing is left to train"), std::string::npos);
}

}  // namespace
}  // namespace forge::test
