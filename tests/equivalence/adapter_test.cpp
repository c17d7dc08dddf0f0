#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "config/family.hpp"
#include "cover.hpp"
#include "model/flops.hpp"
#include "models.hpp"
#include "plan/task_segments.hpp"
#include "run_threads.hpp"

// Adapters beside a frozen model, on any layout.

namespace forge::test {
namespace {

constexpr std::int64_t adapter_steps = 10;

// All matrices; some, of fused ones too; those that tp splits by columns alone.
Deck with_adapter(Deck deck, std::size_t choice) {
  AdapterDeck& a = deck.model.adapter;
  a.name = AdapterName::lora;
  a.rank = 3;
  a.alpha = 5;
  a.rank_stabilised = choice % 2 == 1;
  const bool gpt2 = deck.model.family == Family::gpt2;
  if (choice % 3 == 1)
    a.targets = gpt2 ? std::vector<std::string>{"c_attn"} : std::vector<std::string>{"v_proj", "q_proj", "up_proj"};
  if (choice % 3 == 2)
    a.targets = gpt2 ? std::vector<std::string>{"c_proj"} : std::vector<std::string>{"o_proj", "down_proj", "k_proj"};
  return deck;
}

bool takes_adapter(const Deck& deck) {
  return deck.model.experts == 0 && deck.model.attention == AttentionKind::standard;
}

TEST(Adapters, EqualOneRank) {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (std::uint64_t key = 91; key < 93; ++key)
      for (LayoutCase& c : drawn_layouts(ranks, key))
        if (takes_adapter(c.deck))
          cases.push_back({c.name, with_adapter(with_training(c.deck, adapter_steps), cases.size())});
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, adapter_steps, 1e-10); };
  EXPECT_GE(cases.size(), 100u);
  const auto some = thinned(cases, 6);
  EXPECT_EQ(failures_of(some, some.size(), check), "");
}

// Of a model that has adapters nothing else has gradients.
TEST(Adapters, AreTrainedAlone) {
  for (const TestModel& model : test_models()) {
    if (!takes_adapter(model.deck)) continue;
    Deck deck = one_rank(with_adapter(model.deck, 0));
    ASSERT_EQ(illegality(deck), "") << model.name;
    const LayoutResult result = run_threads(deck, {});
    EXPECT_EQ(result.problem, "") << model.name;
    EXPECT_FALSE(result.gradients.empty()) << model.name;
    for (const auto& [name, values] : result.gradients)
      EXPECT_TRUE(name.ends_with(".lora_a") || name.ends_with(".lora_b")) << name;
  }
}

// What a step computes is the model's formula, and the matrices' gradients are not in it.
TEST(Adapters, CountTheirFlop) {
  for (const TestModel& model : test_models()) {
    if (!takes_adapter(model.deck)) continue;
    Deck deck = one_rank(with_adapter(model.deck, 0));
    deck.train.global_batch_sequences = deck.train.microbatch_sequences;
    ASSERT_EQ(illegality(deck), "") << model.name;
    const RunSetup setup = make_setup(deck);
    double sum = 0;
    for (const Task& task : step_tasks(setup.share, setup.schedule, Recompute::none)) {
      const Segments list = segments_of(setup.buffers, setup.share, task);
      sum += list.flops();
      for (const AttentionProduct& a : list.all<AttentionProduct>())
        if (a.backward) sum -= 2 * static_cast<double>(a.sequences * a.heads * a.head_size) * a.pairs();
    }
    const auto tokens = static_cast<double>(setup.tokens_per_step());
    const double formula = training_flops_per_token(setup.spec, setup.units, deck.train.sequence_tokens);
    EXPECT_NEAR(sum / tokens / formula, 1, 1e-12) << model.name;
  }
}

}  // namespace
}  // namespace forge::test
