#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "../device_values.hpp"
#include "../long_run.hpp"
#include "comm/thread_communicator.hpp"
#include "config/fp8_recipe.hpp"
#include "cover.hpp"
#include "models.hpp"
#include "plan/memory.hpp"
#include "run_threads.hpp"
#include "train/trainer.hpp"

namespace forge::test {
namespace {

const std::int64_t steps = third_volume() ? 4 : 10;

// Whose scales come from the numbers at hand.
constexpr Fp8Recipe recipes[] = {Fp8Recipe::current, Fp8Recipe::row, Fp8Recipe::block};

Deck in_fp8(Deck deck, Fp8Recipe recipe, Fp8Scale scale = Fp8Scale::power_of_two,
            Fp8Carrier carrier = Fp8Carrier::fp64) {
  deck.train.precision = PrecisionName::fp8;
  deck.train.fp8_recipe = recipe;
  deck.train.fp8_scale = scale;
  deck.train.fp8_carrier = carrier;
  return deck;
}

// Some matrices are several blocks of 128 wide, whose bounds are not those of tp ranks.
Deck wide() {
  Deck deck = test_models()[0].deck;
  deck.model.layers = 2;
  deck.model.width = 152;
  deck.model.ffn = 336;
  deck.model.head_dim = 24;
  deck.model.initial_std = 0.05;
  return deck;
}

// Meshes of 1 … 8 ranks of all models, dense and with experts; what else a layout chooses is drawn.
std::vector<LayoutCase> layouts(Fp8Recipe recipe, std::uint64_t key) {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const auto& list : {drawn_layouts(ranks, key), drawn_moe_layouts(ranks, key)})
      for (const LayoutCase& c : list) {
        Deck deck = in_fp8(c.deck, recipe, cases.size() % 4 == 3 ? Fp8Scale::exact : Fp8Scale::power_of_two);
        deck.train.fp8_experts = deck.model.experts > 0 && cases.size() % 4 != 1;
        deck.train.fp8_first_layers_bf16 = cases.size() % 3 == 2;
        deck.train.fp8_last_layers_bf16 = cases.size() % 5 == 2;
        if (recipe == Fp8Recipe::delayed) deck.train.fp8_history = 2 + static_cast<std::int64_t>(cases.size() % 2);
        cases.push_back({c.name, with_training(deck, steps)});
      }
  return cases;
}

// What the largest magnitudes of all operands are, without those of blocks and rows of which nothing is here.
std::set<float> amaxes(const LayoutResult& result) {
  std::set<float> found = result.amaxes;
  found.erase(0.f);
  return found;
}

// Gradients of step 1, losses, norms and parameters of all steps equal one rank's, as far as fp64 goes: a code that
// differed anywhere would move them by far more. Scales are the same numbers.
std::string equals_one(const Deck& deck, References& references, std::int64_t count = steps) {
  if (std::string wrong = equals_one_rank(deck, references, count, 1e-9); !wrong.empty()) return wrong;
  Deck checked = deck;
  illegality(checked);
  const std::set<float> one = amaxes(references.of(checked, 0));
  if (one.size() < 20) return "only " + std::to_string(one.size()) + " scales";
  RunOptions options;
  options.whole = false;
  const std::set<float> here = amaxes(run_threads(checked, options));
  return here == one ? "" : "other scales than one rank's";
}

void expect_one_ranks(Fp8Recipe recipe, std::uint64_t key, std::size_t stride) {
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one(c.deck, references); };
  const auto cases = layouts(recipe, key);
  EXPECT_EQ(failures_of(thinned(cases, stride), part_of(2 * 96, stride), check), "");
}

TEST(Fp8, CurrentEqualsOneRank) {
  expect_one_ranks(Fp8Recipe::current, 81, 9);
}
TEST(Fp8, RowEqualsOneRank) {
  expect_one_ranks(Fp8Recipe::row, 83, 13);
}
TEST(Fp8, BlockEqualsOneRank) {
  expect_one_ranks(Fp8Recipe::block, 87, 13);
}

TEST(Fp8, DelayedEqualsOneRank) {
  expect_one_ranks(Fp8Recipe::delayed, 91, 19);
}

// tp, sequence parallelism and cp, with matrices of several blocks.
TEST(Fp8, WideMatricesEqualOneRank) {
  std::vector<LayoutCase> cases;
  const MeshDeck meshes[] = {{1, 1, 1, 1, 2}, {1, 1, 1, 2, 2}, {1, 1, 1, 1, 4}, {1, 1, 2, 1, 4}};
  for (const Fp8Recipe recipe : recipes)
    for (const MeshDeck& mesh : meshes) {
      Choice choice;
      choice.zero_stage = mesh.dp_shard > 1 ? 3 : 0;
      cases.push_back({"wide", with_training(layout_deck(in_fp8(wide(), recipe), mesh, choice, cases.size()), 4)});
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 4, 1e-9); };
  EXPECT_EQ(failures_of(cases, 12, check), "");
}

// Experts' products in FP8, in every recipe: ep, etp, both ways of dispatch, and capacities of a rank, whose padding
// has no magnitude. Models have rounds that are too small for what arrives.
TEST(Fp8, ExpertsEqualOneRank) {
  std::vector<LayoutCase> cases;
  const MeshDeck meshes[] = {
      {1, 1, 3, 1, 1, 3, 1}, {1, 1, 2, 1, 2, 2, 2}, {1, 1, 1, 2, 2, 1, 2}, {1, 1, 1, 1, 4, 2, 2}};
  const auto models = moe_models();
  for (const Fp8Recipe recipe : recipes)
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t n = cases.size();
      const MeshDeck& mesh = meshes[(n + n / 4) % 4];  // so that every second case has them all
      Choice choice;
      choice.zero_stage = mesh.dp_shard > 1 ? 3 : 0;
      Deck deck = in_fp8(models[n % models.size()].deck, recipe);
      deck.train.fp8_experts = true;
      if (recipe == Fp8Recipe::block) deck.model.expert_ffn = 272;  // etp ranks share a block
      deck.model.dispatch = n / 2 % 2 ? DispatchMethod::all_gather : DispatchMethod::all_to_all;
      cases.push_back({models[n % models.size()].name, with_training(layout_deck(deck, mesh, choice, n), steps)});
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one(c.deck, references); };
  EXPECT_EQ(failures_of(thinned(cases, 2), part_of(12, 2), check), "");
}

// A model whose rows go to the experts as codes; with `block`, rows of two groups of columns.
Deck dispatching(Deck deck, Fp8Recipe recipe, DispatchMethod method) {
  deck = in_fp8(deck, recipe);
  deck.train.fp8_experts = deck.train.fp8_dispatch = true;
  if (recipe == Fp8Recipe::block) deck.model.width = 144;
  deck.model.dispatch = method;
  return deck;
}

// Rows that travel as codes: every recipe, both ways of dispatch, ep and etp with tp, cp and ZeRO beside them, all
// kinds of routers, each policy of recomputation; one rank rounds them, too. Memory and bytes are those planned.
TEST(Fp8, DispatchedCodesEqualOneRank) {
  std::vector<LayoutCase> cases;
  const MeshDeck meshes[] = {{1, 1, 3, 1, 1, 3, 1}, {1, 1, 2, 1, 2, 2, 2}, {1, 1, 1, 2, 2, 1, 2},
                             {1, 1, 1, 1, 4, 2, 2}, {1, 2, 2, 1, 2, 2, 1}, {1, 1, 1, 1, 2, 1, 1}};
  const auto models = moe_models();
  for (const Fp8Recipe recipe : {Fp8Recipe::block, Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row})
    for (std::size_t i = 0; i < 6; ++i) {
      const std::size_t n = cases.size();
      const MeshDeck& mesh = meshes[(n + n / 6) % 6];
      Choice choice;
      choice.zero_stage = mesh.dp_shard > 1 ? 3 : 0;
      choice.recompute = recompute_of(n / 3);
      const auto method = n / 2 % 2 ? DispatchMethod::all_gather : DispatchMethod::all_to_all;
      const Deck deck = dispatching(models[n % models.size()].deck, recipe, method);
      cases.push_back({models[n % models.size()].name, with_training(layout_deck(deck, mesh, choice, n), 4)});
      if (n % 4 == 2) cases.back().deck.train.fp8_last_layers_bf16 = 1;
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one(c.deck, references, 4); };
  EXPECT_EQ(failures_of(thinned(cases, 3), part_of(24, 3), check), "");
}

// The rounding in front of the dispatch is that of the products behind it: forward nothing changes, to the bit. What
// does is what the gradients of experts' weights read, on one rank as on several.
TEST(Fp8, DispatchedCodesChangeWeightGradientsAlone) {
  for (const Fp8Recipe recipe : {Fp8Recipe::block, Fp8Recipe::current}) {
    Deck deck = one_rank(dispatching(moe_models().front().deck, recipe, DispatchMethod::all_to_all));
    RunOptions options;
    EXPECT_EQ(illegality(deck), "");
    const LayoutResult codes = run_threads(deck, options);
    deck.train.fp8_dispatch = false;
    const LayoutResult rows = run_threads(deck, options);
    EXPECT_EQ(codes.problem + rows.problem, "");
    EXPECT_EQ(codes.loss, rows.loss);
    int experts = 0;
    for (const auto& [name, gradient] : rows.gradients) {
      const bool of_experts = name.find(".experts.") != std::string::npos;
      EXPECT_EQ(gradient != codes.gradients.at(name), of_experts) << name;
      experts += of_experts;
    }
    EXPECT_GT(experts, 0);
  }
}

// Weight gradients of transposed copies: sequences of two groups of rows, of which the second is short and tp ranks
// share both where sequence parallelism cuts them; cp ranks with whole groups.
TEST(Fp8, TransposedCopiesEqualOneRank) {
  struct Case {
    Deck model;
    MeshDeck mesh;
    std::int64_t tokens, sequences;
  };
  const auto dense = test_models();
  const auto latent = std::find_if(dense.begin(), dense.end(), [](const TestModel& m) {
    return m.deck.model.attention == AttentionKind::mla && m.deck.model.q_lora > 0;
  });
  const auto normed = std::find_if(dense.begin(), dense.end(), [](const TestModel& m) { return m.deck.model.qk_norm; });
  ASSERT_TRUE(latent != dense.end() && normed != dense.end());
  const Case list[] = {{dense[0].deck, {1, 1, 1, 1, 2}, 200, 1},
                       {latent->deck, {1, 1, 2, 1, 2}, 200, 1},
                       {moe_models().front().deck, {1, 1, 2, 1, 1, 2, 1}, 136, 2},
                       {normed->deck, {1, 1, 1, 2, 2}, 512, 1}};
  std::vector<LayoutCase> cases;
  for (const Case& c : list) {
    Choice choice;
    choice.recompute = cases.size() % 2 ? Recompute::full : Recompute::none;
    Deck deck = in_fp8(c.model, Fp8Recipe::block);
    deck.train.fp8_transposed = true;
    deck.train.fp8_experts = deck.model.experts > 0;
    deck.train.sequence_tokens = c.tokens;
    deck = layout_deck(deck, c.mesh, choice, 0);
    deck.model.layers = std::min<std::int64_t>(deck.model.layers, 3);
    deck.train.microbatch_sequences = c.sequences;
    deck.train.global_batch_sequences = 2 * c.sequences * c.mesh.dp_shard;
    deck.train.fp8_last_layers_bf16 = cases.size() == 0;
    cases.push_back({"transposed", with_training(deck, steps)});
    cases.back().deck.train.validation_sequences = 5;
  }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one(c.deck, references); };
  EXPECT_EQ(failures_of(cases, 4, check), "");
}

// What the history was before the step, and behind it; whether the step was finite.
struct HistoryOfStep {
  std::vector<float> before, after;
  bool finite = true;
};

// A step of one replica of two; `spoils`: a weight of the second is Inf in its first block.
HistoryOfStep history_of_step(Communicator& world, const Deck& deck, bool spoils) {
  const RunSetup setup = make_setup(deck, world.rank());
  Mesh mesh(world.duplicate(), setup.mesh, groups_of(setup));
  const MemoryPlan plan =
      plan_memory(setup.buffers, setup.share, setup.schedule, std::size_t{1} << 20, RunKind::training);
  Session<double> session(setup, plan.total(), RunKind::training, mesh, 1);
  session.initialise();
  for (std::size_t u = 0; u < session.storage().size() && spoils && world.rank() == 1; ++u)
    if (session.storage().local(u).kind == UnitKind::block && session.storage().local(u).layer == 0)
      set_values(session.stream(), session.storage().unit(u).master.slice(0, 1), {HUGE_VAL});
  session.parameters_changed();
  const View<float, 1> entries = line_of(session.amax_history().entries);
  HistoryOfStep found{values_of(session.stream(), entries), {}};
  const TrainingData data(setup);
  std::vector<StepRecord> records;
  Trainer<double>(session, data, 1, TrainingLog(nullptr, &records)).run();
  found.after = values_of(session.stream(), entries);
  found.finite = std::isfinite(records.at(0).loss) && std::isfinite(records.at(0).grad_norm);
  return found;
}

// Inf in a weight is cut to the format's largest number, so that loss and gradients are finite: the history isn't. All
// ranks leave the step out, and no entry is made.
TEST(Fp8, InfiniteAmaxIsNoEntry) {
  Deck deck = one_rank(in_fp8(test_models()[0].deck, Fp8Recipe::delayed));
  deck.mesh.dp_replicate = 2;
  deck.train.steps = 1;
  deck.train.max_not_finite_steps = 2;
  deck.optimizer.warmup_steps = 0;
  EXPECT_EQ(illegality(deck), "");
  for (const bool spoils : {false, true})
    run_ranks(2, [&](Communicator& world) {
      const HistoryOfStep found = history_of_step(world, deck, spoils);
      EXPECT_EQ(found.finite, !spoils);
      EXPECT_EQ(found.before == found.after, spoils);
      EXPECT_EQ(found.before, std::vector<float>(found.before.size()));
    });
}

std::array<double, 2> loss_and_norm(Deck deck) {
  EXPECT_EQ(illegality(deck), "");
  RunOptions options;
  options.whole = false;
  const LayoutResult result = run_threads(deck, options);
  EXPECT_EQ(result.problem, "");
  return {result.loss, result.grad_norm};
}

// No recipe, scale or choice of layers is another one's alias, and none is far from fp64. Losses of two recipes may be
// the same number: powers of two that differ move a code's exponent and nothing else, until numbers are small.
TEST(Fp8, RecipesDiffer) {
  const Deck model = one_rank(test_models()[0].deck);
  std::vector<Deck> decks{model};
  for (const Fp8Recipe recipe : recipes)
    for (const Fp8Scale scale : {Fp8Scale::power_of_two, Fp8Scale::exact})
      decks.push_back(in_fp8(model, recipe, scale));
  decks.push_back(in_fp8(model, Fp8Recipe::delayed));
  decks.push_back(in_fp8(model, Fp8Recipe::current));
  decks.back().train.fp8_first_layers_bf16 = 2;
  decks.push_back(in_fp8(model, Fp8Recipe::current));
  decks.back().train.fp8_last_layers_bf16 = 2;
  decks.push_back(in_fp8(model, Fp8Recipe::block));
  decks.back().train.fp8_transposed = true;
  std::vector<std::array<double, 2>> found;
  for (const Deck& deck : decks) found.push_back(loss_and_norm(deck));
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i][0], found[0][0], 0.1 * found[0][0]);
    const double moved = std::abs(found[i][0] - found[0][0]);
    EXPECT_TRUE(i == 0 || moved > 1e-7) << i;
    for (std::size_t j = 0; j < i; ++j) EXPECT_GT(std::abs(found[i][1] - found[j][1]), 1e-7) << i << ", " << j;
  }
}

// With bf16 for all else the loss is as near to that with fp64 as roundings to bf16 and, where these move a code to its
// neighbour, to a format of three bits of mantissa let it be. Memory, bytes and products are those planned.
TEST(Fp8, Bf16CarrierIsNearFp64) {
  std::vector<LayoutCase> cases;
  for (const int ranks : {1, 4, 6, 8})
    for (LayoutCase c : drawn_layouts(ranks, 89)) {
      c.deck.model.initial_std = 0.1;
      cases.push_back({c.name, in_fp8(c.deck, recipes[cases.size() % 3], Fp8Scale::power_of_two, Fp8Carrier::bf16)});
    }
  const auto check = [&](const LayoutCase& c) -> std::string {
    Deck deck = c.deck;
    if (const auto rule = illegality(deck); !rule.empty()) return "is refused: " + rule;
    RunOptions options;
    options.whole = false;
    const LayoutResult low = run_threads(deck, options);
    if (!low.problem.empty()) return low.problem;
    deck.train.fp8_carrier = Fp8Carrier::fp64;
    const LayoutResult high = run_threads(deck, options);
    const double error = std::abs(low.loss / high.loss - 1), of_norm = std::abs(low.grad_norm / high.grad_norm - 1);
    return error < 0x1p-6 && of_norm < 0x1p-3
               ? ""
               : "loss and norm deviate by " + std::to_string(error) + ", " + std::to_string(of_norm);
  };
  const auto some = thinned(cases, 4);
  EXPECT_EQ(failures_of(some, some.size(), check), "");
  EXPECT_GE(cases.size(), 48u);
}

}  // namespace
}  // namespace forge::test
