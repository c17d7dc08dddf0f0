#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "config/check_parts.hpp"
#include "config/family.hpp"
#include "config/fp8_recipe.hpp"
#include "config/optimizer_table.hpp"
#include "cover.hpp"
#include "model/flops.hpp"
#include "models.hpp"
#include "plan/task_segments.hpp"
#include "run_threads.hpp"

// Adapters beside a frozen model, on any layout.

namespace forge::test {
namespace {

constexpr std::int64_t adapter_steps = 10;

// All matrices; some, of fused ones too; those that tp splits by columns alone. Those of experts are among them.
Deck with_adapter(Deck deck, std::size_t choice) {
  AdapterDeck& a = deck.model.adapter;
  a.name = AdapterName::lora;
  a.rank = 3;
  a.alpha = 5;
  a.rank_stabilised = choice % 2 == 1;
  deck.model.router_bias_rate = 0;
  if (deck.model.attention == AttentionKind::mla || deck.model.experts > 0 || deck.model.full_attention_interval > 0) {
    const std::vector<std::string> names = adapter_targets(deck.model);
    const bool all = deck.model.family == Family::gpt_oss && choice % 3 == 0;  // whose experts take none
    for (std::size_t i = 0; i < names.size(); ++i)
      if (all || (choice % 3 > 0 && i % 2 == choice % 3 - 1)) a.targets.push_back(names[i]);
    return deck;
  }
  const bool gpt2 = deck.model.family == Family::gpt2, fused = deck.model.family == Family::phi3;
  if (choice % 3 == 1)
    a.targets = gpt2    ? std::vector<std::string>{"c_attn"}
                : fused ? std::vector<std::string>{"qkv_proj", "gate_up_proj"}
                        : std::vector<std::string>{"v_proj", "q_proj", "up_proj"};
  if (choice % 3 == 2)
    a.targets = gpt2    ? std::vector<std::string>{"c_proj"}
                : fused ? std::vector<std::string>{"o_proj", "down_proj"}
                        : std::vector<std::string>{"o_proj", "down_proj", "k_proj"};
  return deck;
}

// Of matrices that aren't experts'.
Deck with_dropout(Deck deck) {
  AdapterDeck& a = deck.model.adapter;
  a.dropout = 0.3;
  if (deck.model.experts == 0) return deck;
  const TensorNames& of = tensor_names(deck.model.family);
  if (a.targets.empty()) a.targets = adapter_targets(deck.model);
  std::erase_if(a.targets,
                [&](const std::string& name) { return name == of.gate || name == of.up || name == of.down; });
  if (a.targets.empty()) a.targets = {"o_proj"};
  return deck;
}

// Every second Llama has Phi-3's fused tensors.
std::vector<LayoutCase> drawn_with_experts(int ranks, std::uint64_t key) {
  std::vector<LayoutCase> cases = drawn_layouts(ranks, key);
  for (std::size_t i = key % 2; i < cases.size(); i += 2)
    if (ModelDeck& m = cases[i].deck.model; m.family == Family::llama) m.family = Family::phi3;
  const std::vector<LayoutCase> experts = drawn_moe_layouts(ranks, key);
  cases.insert(cases.end(), experts.begin(), experts.end());
  return cases;
}

std::vector<TestModel> all_models() {
  std::vector<TestModel> models = test_models();
  for (TestModel& model : moe_models()) models.push_back(std::move(model));
  models.push_back({"gated DeltaNet", with_delta(models[0].deck, 1)});
  return models;
}

TEST(Adapters, EqualOneRank) {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (std::uint64_t key = 92; key < 94; ++key)
      for (LayoutCase& c : drawn_with_experts(ranks, key))
        cases.push_back({c.name, with_adapter(with_training(c.deck, adapter_steps), cases.size())});
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, adapter_steps, 1e-10); };
  EXPECT_GE(cases.size(), 100u);
  const auto some = thinned(cases, 8);
  EXPECT_TRUE(
      std::any_of(some.begin(), some.end(), [](const LayoutCase& c) { return c.deck.model.family == Family::phi3; }));
  EXPECT_EQ(failures_of(some, some.size(), check), "");
}

// Beside gated DeltaNet, of both families' tensors, and attention whose output has gates.
TEST(Adapters, OfDeltaNetEqualOneRank) {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const auto& list : {drawn_layouts(ranks, 97), drawn_moe_layouts(ranks, 97)})
      for (const LayoutCase& c : list) {
        if (!takes_delta(c.deck)) continue;
        Deck deck = with_delta(with_training(c.deck, 4), cases.size());
        if (cases.size() % 2 == 0 && deck.model.experts == 0) deck.model.family = Family::qwen3_next;
        deck = with_adapter(deck, cases.size());
        cases.push_back({c.name, cases.size() % 3 == 2 ? with_dropout(deck) : deck});
      }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 4, 1e-9); };
  EXPECT_GE(cases.size(), 60u);
  const auto some = thinned(cases, 12);
  EXPECT_EQ(failures_of(some, some.size(), check), "");
}

// The same elements of an input are dropped on any layout, as they are in recomputation and backward.
TEST(Adapters, WithDropoutEqualOneRank) {
  std::vector<LayoutCase> cases;
  for (int ranks = 2; ranks <= 8; ++ranks)
    for (LayoutCase& c : drawn_with_experts(ranks, 96)) {
      Deck deck = with_dropout(with_adapter(with_training(c.deck, 4), cases.size()));
      if (cases.size() % 4 == 3) deck.model.dropout = 0.2;
      cases.push_back({c.name, deck});
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 4, 1e-10); };
  EXPECT_GE(cases.size(), 100u);
  const auto some = thinned(cases, 10);
  EXPECT_EQ(failures_of(some, some.size(), check), "");
}

// Another mask, and none where nothing is trained.
TEST(Adapters, DropoutIsOfTheStep) {
  Deck deck = one_rank(with_adapter(test_models()[0].deck, 0));
  ASSERT_EQ(illegality(deck), "");
  const LayoutResult without = run_threads(deck, {});
  const LayoutResult with = run_threads(with_dropout(deck), {});
  EXPECT_EQ(with.problem, "");
  EXPECT_NE(with.gradients, without.gradients);
}

// Matrices that their owners orthogonalise whole. Small singular values enlarge what rounding leaves: one rank with
// other microbatches differs by 7e-11 after nine steps of one of these models, by 3e-13 after five.
constexpr std::int64_t muon_steps = 5;

TEST(Adapters, OfMuonEqualOneRank) {
  for (const OptimizerName name : {OptimizerName::muon, OptimizerName::normuon}) {
    std::vector<LayoutCase> cases;
    for (int ranks = 2; ranks <= 8; ++ranks)
      for (LayoutCase& c : drawn_with_experts(ranks, 93)) {
        Deck deck = with_adapter(with_training(c.deck, muon_steps), cases.size());
        deck.optimizer.name = name;
        deck.optimizer.adam_learning_rate = 4e-3;
        cases.push_back({c.name, deck});
      }
    References references;
    const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, muon_steps, 1e-10); };
    EXPECT_GE(cases.size(), 100u);
    const auto some = thinned(cases, 20);
    EXPECT_EQ(failures_of(some, some.size(), check), "") << row_of(name).word;
  }
}

// The model's products in FP8, those of adapters not.
TEST(Adapters, InFp8EqualOneRank) {
  std::vector<LayoutCase> cases;
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::row, Fp8Recipe::block, Fp8Recipe::delayed})
    for (int ranks = 2; ranks <= 8; ++ranks)
      for (LayoutCase& c : drawn_with_experts(ranks, 95)) {
        Deck deck = with_adapter(with_training(c.deck, 4), cases.size());
        deck.train.precision = PrecisionName::fp8;
        deck.train.fp8_recipe = recipe;
        deck.train.fp8_carrier = Fp8Carrier::fp64;
        deck.train.fp8_experts = deck.model.experts > 0 && cases.size() % 2 == 0;
        deck.train.fp8_gather = deck.train.zero_stage == 3 && deck.train.gather == GatherPolicy::microbatch &&
                                properties_of(recipe).has_one_code();
        cases.push_back({c.name, deck});
      }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 4, 1e-9); };
  EXPECT_GE(cases.size(), 400u);
  const auto some = thinned(cases, 30);
  EXPECT_EQ(failures_of(some, some.size(), check), "");
}

// Rows of experts that cross once to each other node, in two hops.
TEST(Adapters, InTwoHopsEqualOneRank) {
  const std::vector<TestModel> models = moe_models();
  const MeshDeck meshes[] = {{.dp_shard = 8, .ep = 8, .etp = 1},
                             {.dp_shard = 4, .tp = 2, .ep = 8, .etp = 1},
                             {.pp = 2, .dp_shard = 2, .tp = 2, .ep = 4, .etp = 1}};
  std::vector<LayoutCase> cases;
  for (const std::size_t number : {0u, 2u, 3u})
    for (const MeshDeck& mesh : meshes) {
      Choice choice;
      choice.zero_stage = static_cast<int>(cases.size() % 4);
      choice.recompute = recompute_of(cases.size());
      Deck deck = layout_deck(models[number].deck, mesh, choice, cases.size());
      deck.model.experts = 8;
      if (deck.model.router_groups > 1) deck.model.router_groups = 4;
      deck.model.dispatch = DispatchMethod::automatic;
      deck.mesh.node_ranks = 2;
      cases.push_back({models[number].name, with_adapter(with_training(deck, 3), cases.size())});
      EXPECT_EQ(make_setup(cases.back().deck).buffers.ep_nodes, mesh.ep / 2) << cases.back().name;
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 3, 1e-10); };
  EXPECT_EQ(failures_of(cases, 9, check), "");
}

// Products in the order of the plan, with its memory and bytes, where forced_balance deals the experts: etp cuts them,
// and stages, shards and codes of rows are there.
TEST(Adapters, RunAsListed) {
  const MeshDeck meshes[] = {{.dp_shard = 2, .tp = 2, .ep = 2, .etp = 2},
                             {.dp_shard = 2, .tp = 2, .ep = 1, .etp = 2},
                             {.pp = 2, .dp_shard = 2, .tp = 2, .ep = 2, .etp = 1},
                             {.dp_replicate = 2, .cp = 2, .tp = 2, .ep = 2, .etp = 2}};
  std::size_t runs = 0;
  for (const MeshDeck& mesh : meshes)
    for (const PrecisionName precision : {PrecisionName::fp64, PrecisionName::bf16, PrecisionName::fp8}) {
      Deck deck = with_adapter(moe_models()[0].deck, 0);
      if (runs % 2 == 1) deck.model.shared_expert_ffn = 40;
      if (runs % 3 == 1) deck = with_dropout(deck);
      deck.model.forced_balance = true;
      deck.model.dispatch_rows = 1.5;
      deck.train.sequence_tokens = 64;
      deck.data.document_end_token = -1;
      deck.mesh = mesh;
      deck.train.zero_stage = static_cast<int>(runs % 4);
      deck.train.recompute = recompute_of(runs);
      deck.train.precision = precision;
      if (precision == PrecisionName::fp8) {
        deck.train.fp8_carrier = Fp8Carrier::fp64;
        deck.train.fp8_experts = deck.train.fp8_dispatch = true;
      }
      ASSERT_EQ(illegality(deck), "") << text_of(deck);
      EXPECT_EQ(run_threads(deck, {.alike = true}).problem, "") << text_of(deck);
      ++runs;
    }
  EXPECT_EQ(runs, 12u);
}

// Dense layers with dropout run the listed kernels.
TEST(Adapters, RunAsListedWithDropout) {
  for (const std::size_t number : {0u, 1u, 2u})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      const TestModel model = test_models()[number];
      Deck deck = with_dropout(with_adapter(model.deck, 0));
      deck.mesh = {.pp = 2, .tp = 2};
      deck.train.recompute = recompute;
      deck.data.document_end_token = -1;
      deck.train.precision = number == 1 ? PrecisionName::bf16 : PrecisionName::fp64;
      ASSERT_EQ(illegality(deck), "") << text_of(deck);
      EXPECT_EQ(run_threads(deck, {.alike = true}).problem, "") << text_of(deck);
    }
}

// Of a model that has adapters nothing else has gradients.
TEST(Adapters, AreTrainedAlone) {
  for (const TestModel& model : all_models()) {
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
  for (const TestModel& model : all_models()) {
    if (model.deck.model.full_attention_interval > 0) continue;  // in chunks, the formula row by row
    Deck deck = one_rank(with_adapter(model.deck, 0));
    deck.model.capacity_factor = 0;  // the formula counts all of a token's experts
    deck.model.capacity_drop = CapacityDrop::position;
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
