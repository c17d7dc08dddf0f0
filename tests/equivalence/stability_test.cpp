#include <gtest/gtest.h>

#include <cmath>

#include "../long_run.hpp"
#include "config/optimizer_table.hpp"
#include "cover.hpp"
#include "models.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t steps = 6;

// Soft caps in every model, QK-clip where heads have no norm, norms by unit every other step.
Deck with_stability(Deck deck, OptimizerName name) {
  deck.optimizer.name = name;
  deck.model.attention_soft_cap = 0.9;
  deck.model.logit_soft_cap = 2;
  deck.output.norms_every_steps = 2;
  if (!deck.model.qk_norm) deck.optimizer.qk_clip = 0.25;
  return with_training(deck, steps);
}

std::vector<LayoutCase> layouts_of(OptimizerName name) {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    auto drawn = drawn_layouts(ranks, 171);
    const auto experts = drawn_moe_layouts(ranks, 173), further = drawn_mtp_layouts(ranks, 1, 7);
    drawn.insert(drawn.end(), experts.begin(), experts.end());
    drawn.insert(drawn.end(), further.begin(), further.end());
    for (LayoutCase& c : drawn) cases.push_back({c.name, with_stability(c.deck, name)});
  }
  return cases;
}

// Losses, norms, every parameter, the largest logits and each unit's norms.
void expect_one_ranks(OptimizerName name, std::size_t stride) {
  References references;
  const auto check = [&](const LayoutCase& c) -> std::string {
    const std::string text = equals_one_rank(c.deck, references, steps, 1e-10);
    const LayoutResult& one = references.of(c.deck, steps);
    if (text.empty() && c.deck.optimizer.qk_clip > 0 && one.clipped_heads == 0) return "no head is clipped";
    return text;
  };
  const auto all = layouts_of(name), cases = thinned(all, stride);
  EXPECT_GE(all.size(), 144u);
  EXPECT_EQ(failures_of(cases, cases.size(), check), "");
}

TEST(Stability, AdamwEqualsOneRank) {
  expect_one_ranks(OptimizerName::adamw, 12);
}
TEST(Stability, MuonEqualsOneRank) {
  expect_one_ranks(OptimizerName::muon, 20);
}
TEST(Stability, AdafactorEqualsOneRank) {
  expect_one_ranks(OptimizerName::adafactor, 31);
}

// One layer, a rate of 0 and a batch that is all of the data: a step's only change is QK-clip, and the next step's
// largest logit is the limit. Grouped heads with rope, heads with biases, latent attention with and without q_lora.
TEST(Stability, ClippedLogitsAreTheLimit) {
  const auto models = test_models();
  for (const char* name : {"llama", "gpt2", "qwen2", "latent", "latent without q_lora"}) {
    SCOPED_TRACE(name);
    const auto found = std::find_if(models.begin(), models.end(), [&](const TestModel& m) { return m.name == name; });
    ASSERT_NE(found, models.end());
    Deck deck = found->deck;
    deck.model.layers = 1;
    deck.model.no_rope_every = 0;
    deck.model.dropout = 0;
    deck.model.sliding_window_layer = 0;
    deck.data.files = {token_file(23, deck.train.global_batch_sequences * deck.train.sequence_tokens + 1)};
    deck.data.validation_files.clear();
    deck.train.steps = 3;
    deck.optimizer.learning_rate = 0;
    deck.optimizer.qk_clip = 0.2;
    deck.output.norms_every_steps = 1;
    for (const double cap : {0.0, 0.5}) {
      deck.model.attention_soft_cap = cap;
      References references;
      const LayoutResult& one = references.of(deck, 3);
      const std::size_t of_step = one.reports.size() / 3;
      ASSERT_GT(of_step, 1u);
      EXPECT_GT(one.reports[0], 0.21);
      for (const std::size_t step : {1u, 2u}) EXPECT_NEAR(one.reports[step * of_step], 0.2, 1e-12) << step;
      EXPECT_GT(one.clipped_heads, 0);
    }
  }
}

// A step's norms by unit against those of the weights and of what has changed in them, relative to their squares.
void expect_norms_of_weights(Deck deck, double weights_bound, double updates_bound) {
  ASSERT_EQ(illegality(deck), "");
  Deck start = one_rank(deck);
  start.train.precision = PrecisionName::fp64;
  start.optimizer.gradients = StateType::compute_default;
  const Tensors before = initial_tensors(start);
  const LayoutResult after = run_threads(deck, {.train_steps = 1});
  double weights = 0, updates = 0, reported_weights = 0, reported_updates = 0;
  for (const auto& [tensor, values] : after.parameters)
    for (std::size_t i = 0; i < values.size(); ++i) {
      weights += values[i] * values[i];
      updates += std::pow(values[i] - before.at(tensor)[i], 2);
    }
  ASSERT_EQ(after.reports.size(), 2u * (5 + 3));
  for (std::size_t i = 0; i < after.reports.size(); i += 2) {
    EXPECT_GT(after.reports[i + 1], 0) << i;
    reported_weights += after.reports[i] * after.reports[i];
    reported_updates += after.reports[i + 1] * after.reports[i + 1];
  }
  EXPECT_NEAR(reported_weights / weights, 1, weights_bound);
  EXPECT_NEAR(reported_updates / updates, 1, updates_bound);
}

Deck one_step(OptimizerName name) {
  Deck deck = one_rank(test_models()[0].deck);
  deck.optimizer.name = name;
  if (row_of(name).averages) deck.optimizer.schedule = RateSchedule::constant;
  deck.train.steps = 1;
  deck.optimizer.warmup_steps = 0;
  deck.output.norms_every_steps = 1;
  return deck;
}

TEST(Stability, NormsAreThoseOfTheWeights) {
  for (const OptimizerName name :
       {OptimizerName::adamw, OptimizerName::lion, OptimizerName::sgd, OptimizerName::muon, OptimizerName::normuon,
        OptimizerName::adafactor, OptimizerName::schedule_free, OptimizerName::soap}) {
    SCOPED_TRACE(row_of(name).word);
    expect_norms_of_weights(one_step(name), 1e-12, 1e-10);
  }
}

// What has changed in a weight stands where its gradient was, in bf16 here: rounded by at most 2^-8 of itself.
TEST(Stability, NormsAreThoseOfTheWeightsWithGradientsInBf16) {
  for (const OptimizerName name : {OptimizerName::adamw, OptimizerName::muon, OptimizerName::lion}) {
    SCOPED_TRACE(row_of(name).word);
    Deck deck = one_step(name);
    deck.train.precision = PrecisionName::bf16;
    deck.optimizer.gradients = StateType::bf16;
    expect_norms_of_weights(deck, 1e-6, 0x1p-7);
    deck.mesh.dp_shard = 2;
    deck.train.zero_stage = 2;
    expect_norms_of_weights(deck, 1e-6, 0x1p-7);
  }
}

}  // namespace
}  // namespace forge::test
