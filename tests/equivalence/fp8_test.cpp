#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "../long_run.hpp"
#include "cover.hpp"
#include "models.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t steps = 10;

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
        deck.train.fp8_first_layers_bf16 = cases.size() % 3 == 2;
        deck.train.fp8_last_layers_bf16 = cases.size() % 5 == 2;
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

// Gradients of step 1, losses, norms and parameters of ten steps equal one rank's, as far as fp64 goes: a code that
// differed anywhere would move them by far more. Scales are the same numbers.
std::string equals_one(const Deck& deck, References& references) {
  if (std::string wrong = equals_one_rank(deck, references, steps, 1e-9); !wrong.empty()) return wrong;
  Deck checked = deck;
  illegality(checked);
  const std::set<float> one = amaxes(references.of(checked, 0));
  if (one.size() < 20) return "only " + std::to_string(one.size()) + " scales";
  RunOptions options;
  options.whole = false;
  const std::set<float> here = amaxes(run_threads(checked, options));
  return here == one ? "" : "other scales than one rank's";
}

void expect_one_ranks(Fp8Recipe recipe, std::uint64_t key, std::size_t stride, std::size_t expected) {
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one(c.deck, references); };
  const auto cases = layouts(recipe, key);
  EXPECT_EQ(failures_of(long_run() ? cases : thinned(cases, stride), long_run() ? cases.size() : expected, check), "");
}

TEST(Fp8, CurrentEqualsOneRank) {
  expect_one_ranks(Fp8Recipe::current, 81, 9, 22);
}
TEST(Fp8, RowEqualsOneRank) {
  expect_one_ranks(Fp8Recipe::row, 83, 13, 15);
}
TEST(Fp8, BlockEqualsOneRank) {
  expect_one_ranks(Fp8Recipe::block, 87, 13, 15);
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
  decks.push_back(in_fp8(model, Fp8Recipe::current));
  decks.back().train.fp8_first_layers_bf16 = 2;
  decks.push_back(in_fp8(model, Fp8Recipe::current));
  decks.back().train.fp8_last_layers_bf16 = 2;
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
  EXPECT_GE(some.size(), 12u);
}

}  // namespace
}  // namespace forge::test
