#include <gtest/gtest.h>

#include "../model/recompute_lists.hpp"
#include "config/family.hpp"
#include "config/optimizer_table.hpp"
#include "config/schedule_name.hpp"
#include "rig.hpp"

namespace forge::test {
namespace {

std::vector<std::pair<const char*, Deck>> families() {
  std::vector<std::pair<const char*, Deck>> list;
  const auto add = [&](const char* name, auto change) {
    Deck d = tiny_deck();
    change(d);
    list.emplace_back(name, d);
  };
  add("llama", [](Deck&) {});
  add("qwen2", [](Deck& d) { d.model.qkv_bias = true; });
  add("qwen3", [](Deck& d) { d.model.qk_norm = d.model.tied_embeddings = true; });
  add("mistral", [](Deck& d) { d.model.sliding_window = 3; });
  add("gpt2", [](Deck& d) {
    d.model.family = Family::gpt2;
    d.model.norm = NormKind::layernorm;
    d.model.activation = Activation::gelu_tanh;
    d.model.positions = PositionKind::learned;
    d.model.max_positions = 16;
    d.model.kv_heads = 4;
    d.model.head_dim = 6;
    d.model.qkv_bias = d.model.attention_out_bias = d.model.mlp_bias = d.model.tied_embeddings = true;
    d.model.dropout = 0.1;
  });
  add("wide_vocabulary", [](Deck& d) {
    d.model.vocabulary = 5003;
    d.train.head_chunk_rows = 4;
  });
  add("gpipe", [](Deck& d) { d.schedule.name = ScheduleName::gpipe; });
  add("zero_bubble", [](Deck& d) { d.schedule.name = ScheduleName::zero_bubble; });
  return list;
}

template <class T>
void hold_plan(const char* name, const Deck& deck) {
  Rig<T> rig(deck);
  Optimizer<T> optimizer(rig.session.storage(), deck.optimizer, rig.session.update_tools());
  for (std::int64_t s = 1; s <= 2; ++s) {
    const StepResult result = rig.gradients(s);
    rig.session.update_weights(optimizer, s, {deck.optimizer, deck.train.steps, s});
    rig.session.stream().synchronize();
    EXPECT_TRUE(result.finite) << name;
  }
  const Arena& arena = rig.session.arena();
  EXPECT_EQ(arena.high_water(), rig.plan.total()) << name << ", recompute " << recompute_text(deck.train);
  for (int c = 0; c < category_count; ++c)
    EXPECT_EQ(arena.at_high_water(static_cast<Category>(c)), rig.plan.of(static_cast<Category>(c)))
        << name << ", " << name_of(static_cast<Category>(c));
}

template <class T>
void hold_plans(const char* name, Deck deck, PrecisionName precision) {
  deck.train.precision = precision;
  deck.mesh.dp_shard = environment->size();
  for (const Recompute recompute : recompute_policies(deck.model)) {
    deck.train.recompute = recompute;
    hold_plan<T>(name, deck);
  }
  static std::size_t number = 0;
  deck.train.recompute = recompute_list(deck.model, number++);
  hold_plan<T>(name, deck);
  deck.train.recompute = Recompute::selective;
  deck.train.recompute_full_layers = 1;
  hold_plan<T>(name, deck);
}

// The planned peak is the arena's high-water mark, to the byte and by category.
TEST(Memory, PlanIsTheHighWaterMark) {
  for (const auto& [name, deck] : families()) {
    hold_plans<double>(name, deck, PrecisionName::fp64);
    hold_plans<float>(name, deck, PrecisionName::fp32);
    hold_plans<bf16>(name, deck, PrecisionName::bf16);
    Deck small_moments = deck;
    small_moments.optimizer.moments = StateType::bf16;
    hold_plans<bf16>(name, small_moments, PrecisionName::bf16);
    small_moments.optimizer.master_weights = StateType::bf16;
    hold_plans<bf16>(name, small_moments, PrecisionName::bf16);
    small_moments.train.zero_stage = 3;
    hold_plans<bf16>(name, small_moments, PrecisionName::bf16);
    Deck muon = deck;
    muon.optimizer.name = OptimizerName::normuon;
    hold_plans<double>(name, muon, PrecisionName::fp64);
    hold_plans<bf16>(name, muon, PrecisionName::bf16);
    Deck soap = deck;
    soap.optimizer.name = OptimizerName::soap;
    hold_plans<double>(name, soap, PrecisionName::fp64);
    hold_plans<bf16>(name, soap, PrecisionName::bf16);
    Deck adafactor = deck;
    adafactor.optimizer.name = OptimizerName::adafactor;
    hold_plans<double>(name, adafactor, PrecisionName::fp64);
    hold_plans<bf16>(name, adafactor, PrecisionName::bf16);
  }
}

TEST(Memory, EvaluationAndGradientsKeepLess) {
  Deck deck = tiny_deck();
  deck.mesh.dp_shard = environment->size();
  Rig<double> training(deck), gradients(deck, RunKind::gradients), evaluation(deck, RunKind::evaluation);
  gradients.gradients(1);
  EXPECT_EQ(gradients.session.arena().high_water(), gradients.plan.total());
  const HostBatch batch = make_batch(evaluation.setup, 0, 1);
  BatchFeed feed(batch);
  evaluation.session.evaluate_microbatch(feed, 0);
  evaluation.session.stream().synchronize();  // copies read the batch until they are done
  EXPECT_EQ(evaluation.session.arena().high_water(), evaluation.plan.total());
  EXPECT_LT(gradients.plan.total(), training.plan.total());
  EXPECT_LT(evaluation.plan.total(), gradients.plan.total());
}

// Recompute trades memory: each policy keeps less than the one before.
TEST(Memory, RecomputeSavesActivations) {
  Deck deck = tiny_deck();
  deck.mesh.dp_shard = environment->size();
  std::size_t before = SIZE_MAX;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    deck.train.recompute = recompute;
    const Rig<double> rig(deck);
    EXPECT_LT(rig.plan.of(Category::activations), before);
    before = rig.plan.of(Category::activations);
  }
}

}  // namespace
}  // namespace forge::test
