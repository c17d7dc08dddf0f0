#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "config/fp8_recipe.hpp"
#include "cover.hpp"
#include "models.hpp"
#include "run_threads.hpp"

// Weights gathered as codes of FP8 (train.fp8_gather): no number is another one.

namespace forge::test {
namespace {

#if defined(FORGE_VGPU)
constexpr std::int64_t steps = 3;
#else
constexpr std::int64_t steps = 4;
#endif
constexpr Fp8Recipe recipes[] = {Fp8Recipe::current, Fp8Recipe::block, Fp8Recipe::delayed};

Deck with_codes(Deck deck, Fp8Recipe recipe, Fp8Scale scale, Fp8Carrier carrier) {
  deck.train.precision = PrecisionName::fp8;
  deck.train.fp8_recipe = recipe;
  deck.train.fp8_scale = scale;
  deck.train.fp8_carrier = carrier;
  if (recipe == Fp8Recipe::delayed) deck.train.fp8_history = 3;
  deck.train.fp8_gather = true;
  return deck;
}

// Every mesh of up to eight ranks with shards of a unit, of all models; what else a layout chooses takes turns. Shards
// cut rows of matrices, and blocks of 128.
std::vector<LayoutCase> layouts(Fp8Carrier carrier) {
  const auto dense = test_models(), moe = moe_models();
  std::vector<LayoutCase> cases;
  for (int ranks = 2; ranks <= 8; ++ranks)
    for (const MeshDeck& mesh : meshes_of(ranks)) {
      if (mesh.dp_shard * mesh.cp == 1) continue;
      const std::size_t n = cases.size();
      Choice choice;
      choice.zero_stage = 3;
      choice.recompute = recompute_of(n);
      choice.schedule = n % 4 == 1 && mesh.pp > 1 ? ScheduleName::interleaved : ScheduleName::one_f_one_b;
      choice.chunks = choice.schedule == ScheduleName::interleaved ? 2 : 1;
      const bool experts = n % 2 == 1;
      const TestModel& model = experts ? moe[n / 2 % moe.size()] : dense[n / 2 % dense.size()];
      const auto expert_meshes = experts ? test::expert_meshes(model.deck, mesh) : std::vector<MeshDeck>{mesh};
      Deck deck = layout_deck(model.deck, expert_meshes[n % expert_meshes.size()], choice, n);
      deck.train.fp8_experts = experts && n % 8 != 3;
      deck.train.fp8_first_layers_bf16 = n % 5 == 2;
      cases.push_back({model.name, with_codes(with_training(deck, steps), recipes[n % 3],
                                              n % 7 == 4 ? Fp8Scale::exact : Fp8Scale::power_of_two, carrier)});
    }
  return cases;
}

[[maybe_unused]] std::set<float> amaxes(const LayoutResult& result) {
  std::set<float> found = result.amaxes;
  found.erase(0.f);
  return found;
}

// Of each n-th layout, so many.
void expect_none(const std::vector<LayoutCase>& cases, std::size_t n, std::size_t expected,
                 const std::function<std::string(const LayoutCase&)>& check) {
  EXPECT_EQ(failures_of(thinned(cases, n),
                        long_run()       ? cases.size()
                        : third_volume() ? (expected + 2) / 3
                                         : expected,
                        check),
            "");
}

#if !defined(FORGE_VGPU)
TEST(Fp8Gather, EqualsOneRank) {
  References references;
  const auto check = [&](const LayoutCase& c) -> std::string {
    if (std::string wrong = equals_one_rank(c.deck, references, steps, 1e-9); !wrong.empty()) return wrong;
    Deck deck = c.deck;
    illegality(deck);
    RunOptions options;
    options.whole = false;
    return amaxes(run_threads(deck, options)) == amaxes(references.of(deck, 0)) ? "" : "other scales than one rank's";
  };
  const auto cases = layouts(Fp8Carrier::fp64);
  expect_none(cases, 7, 9, check);
}
#endif

// "" or what differs in any bit.
std::string difference_of_bits(const LayoutResult& a, const LayoutResult& b) {
  if (!a.problem.empty() || !b.problem.empty()) return a.problem + b.problem;
  if (a.loss != b.loss || a.grad_norm != b.grad_norm || a.losses != b.losses || a.norms != b.norms)
    return "losses or norms";
  if (a.validation_loss != b.validation_loss) return "validation";
  if (a.gradients.empty() || a.parameters.empty()) return "no tensors";
  if (a.gradients != b.gradients) return "gradients";
  if (a.parameters != b.parameters) return "parameters";
  return a.amaxes == b.amaxes ? "" : "scales";
}

std::string same_bits(const LayoutCase& c, bool codes = false) {
  Deck deck = c.deck;
  if (const auto rule = illegality(deck); !rule.empty()) return "is refused: " + rule;
  RunOptions options;
  options.train_steps = deck.train.steps;
  options.codes = codes;
  const LayoutResult with = run_threads(deck, options);
  deck.train.fp8_gather = false;
  return difference_of_bits(with, run_threads(deck, options));
}

#if defined(FORGE_VGPU)
// Blocks of 128, dense and of experts, on two ranks.
TEST(Fp8Gather, HasTheBitsOfBf16) {
  expect_none({layouts(Fp8Carrier::bf16).at(1)}, 1, 1, [](const LayoutCase& c) { return same_bits(c); });
}

// Products of codes, whose weights are encoded a second time, of each recipe on two ranks, scales that are no powers of
// two among them, and experts' with these.
TEST(Fp8Gather, HasTheBitsOfProductsOfCodes) {
  std::vector<LayoutCase> cases;
  const auto all = layouts(Fp8Carrier::bf16);
  for (int i = 0; i < 3; ++i) {
    LayoutCase c = all[i == 1];
    c.deck.train.global_batch_sequences = 4;
    c.deck.model.layers = 2, c.deck.model.width = 32, c.deck.model.ffn = 64;
    c.deck.train.fp8_recipe = recipes[i];
    c.deck.train.fp8_scale = i == 1 ? Fp8Scale::exact : Fp8Scale::power_of_two;
    cases.push_back(c);
  }
  expect_none(cases, 1, cases.size(), [](const LayoutCase& c) { return same_bits(c, true); });
}
#else
TEST(Fp8Gather, HasTheBitsOfBf16) {
  const auto cases = layouts(Fp8Carrier::bf16);
  expect_none(cases, 6, 10, [](const LayoutCase& c) { return same_bits(c); });
}

TEST(Fp8Gather, HasTheBitsOfFp64) {
  const auto cases = layouts(Fp8Carrier::fp64);
  expect_none(cases, 11, 6, [](const LayoutCase& c) { return same_bits(c); });
}
#endif

}  // namespace
}  // namespace forge::test
