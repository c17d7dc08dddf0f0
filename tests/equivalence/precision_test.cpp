#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "../kernels/cut_sum.hpp"
#include "../long_run.hpp"
#include "config/fp8_format.hpp"
#include "config/fp8_recipe.hpp"
#include "cover.hpp"
#include "device/device_memory.hpp"
#include "models.hpp"
#include "plan/setup.hpp"
#include "plan/task_segments.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr double eps64 = 0x1p-53, eps32 = 0x1p-24, eps_bf16 = 0x1p-8;

// The sample: a third of them all, and on an emulated device fewer; how many they are.
#if defined(FORGE_VGPU)
const std::vector<int> sampled_ranks{2, 4};
constexpr std::size_t every = 10;
const std::size_t sampled = part_of(2 * (5 + 15), every);
#else
const std::vector<int> sampled_ranks{2, 4, 6, 8, 12};
constexpr std::size_t every = 3;
const std::size_t sampled = part_of(2 * (5 + 15 + 25 + 35 + 75), every);
#endif

// One layout of every mesh of these numbers of ranks.
std::vector<LayoutCase> sample(PrecisionName precision, std::uint64_t key) {
  std::vector<LayoutCase> cases;
  for (const int ranks : sampled_ranks)
    for (const auto& list : {drawn_layouts(ranks, key), drawn_moe_layouts(ranks, key)})
      for (LayoutCase c : list) {
        // What is dropped by probability isn't replayed, and close ones change places.
        c.deck.model.capacity_drop = CapacityDrop::position;
        c.deck.train.precision = precision;
        cases.push_back(c);
      }
  return thinned(cases, every);
}

// DESIGN's bound counts in units of rounding: 1e-11 is 1e5 of fp64's.
TEST(Precisions, Fp32EqualsOneRank) {
  References references;
  const auto check = [&](const LayoutCase& c) -> std::string {
    Deck deck = c.deck;
    if (const auto rule = illegality(deck); !rule.empty()) return "is refused: " + rule;
    const LayoutResult& one = references.of(deck, 0);
    RunOptions options;
    options.whole = false;
    options.one = &one;
    options.routing = &one.routing;
    return difference(run_threads(deck, options), one, eps32 / eps64);
  };
  EXPECT_EQ(failures_of(sample(PrecisionName::fp32, 4), sampled, check), "");
}

double square_sum(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return sum;
}

// Roundings to bf16 that a gradient has behind it. A layer's forward pass rounds 10 results in turn (norm, projections,
// rotation, attention, its output, sum, norm, up, activation, down) and the residual sum, and reads 4 rounded matrices;
// backward rounds as many and reads the matrices again. Embedding, final norm, head and loss add 5. Attention by tensor
// cores rounds the probabilities forward, and them and their gradients backward.
double roundings(const Deck& deck, const KernelChoice& kernels) {
  const int attention = chosen_attention(deck, kernels.attention) == AttentionKernel::tensor_cores ? 3 : 0;
  return (2 * (11 + 4) + attention) * static_cast<double>(deck.model.layers) + 5;
}

// The relative error of a gradient, and of what it is computed from, is at most this: after N roundings, each of
// relative size u or less, of independent signs, an error is below lambda sqrt(N) u but for a probability of 2
// exp(-lambda^2 / 2) (Higham & Mary, "A new approach to probabilistic rounding error analysis", 2019), here with lambda
// = 3, where the passes don't amplify relative errors. So the test's models start at 0.1, half of what the others have:
// matrices of 24 columns then make values half as large as those that they read, and the residual stream grows slowly,
// as in models that are trained. For five layers it is 0.146.
double rounding_bound(const Deck& deck, const KernelChoice& kernels) {
  return 3 * eps_bf16 * std::sqrt(roundings(deck, kernels));
}
constexpr double moderate_std = 0.1;

// "" where a layout's run in bf16 is as near to the result of one rank in fp64 as rounding lets it be. The gradient as
// a whole, and each tensor: the root mean square of its errors against that of its own entries, or of all, if that is
// more, because errors come from residual streams that all tensors share.
std::string bf16_difference(const LayoutResult& result, const LayoutResult& exact, const Deck& deck, double bound) {
  if (!result.problem.empty()) return result.problem;
  const auto text = [&](const std::string& what, double error) {
    return what + " is " + std::to_string(error) + " from fp64, and the bound is " + std::to_string(bound);
  };
  double squares = 0, errors = 0, elements = 0;
  for (const auto& [name, values] : exact.gradients) {
    squares += square_sum(values);
    elements += static_cast<double>(values.size());
  }
  for (const auto& [name, values] : exact.gradients) {
    const auto found = result.gradient_deviations.find(name);
    if (found == result.gradient_deviations.end()) return name + " is missing";
    if (found->second.owned != static_cast<std::int64_t>(values.size())) return name + " is not owned once";
    errors += found->second.squares;
    const double scale = std::max(square_sum(values), squares / elements * static_cast<double>(values.size()));
    if (const double error = std::sqrt(found->second.squares / scale); !(error <= bound)) return text(name, error);
  }
  if (result.gradient_deviations.size() != exact.gradients.size()) return "other tensors than the model's";
  if (const double error = std::sqrt(errors / squares); !(error <= bound)) return text("the gradient", error);
  if (const double error = std::abs(result.grad_norm / exact.grad_norm - 1); !(error <= bound))
    return text("its norm", error);
  // A logit is a sum of C products of normalised numbers with the output matrix; a label's loss moves as its logits do.
  const double logit = deck.model.initial_std * std::sqrt(static_cast<double>(deck.model.width));
  if (const double error = std::abs(result.loss - exact.loss) / logit; !(error <= bound))
    return text("the loss, in sizes of a logit,", error);
  return "";
}

// On a GPU, every second of them computes attention by CUDA cores, the others by tensor cores.
std::vector<LayoutCase> with_both_kernels(std::vector<LayoutCase> cases) {
#if defined(FORGE_CUDA)
  for (std::size_t i = 1; i < cases.size(); i += 2) cases[i].kernels.attention = AttentionKernel::cuda_cores;
#endif
  return cases;
}

TEST(Precisions, Bf16IsWithinRoundingOfFp64) {
  References references;
  const auto check = [&](const LayoutCase& c) -> std::string {
    Deck deck = c.deck, wide;
    deck.model.initial_std = moderate_std;
    wide = deck;
    wide.train.precision = PrecisionName::fp64;
    for (Deck* d : {&deck, &wide})
      if (const auto rule = illegality(*d); !rule.empty()) return "is refused: " + rule;
    const LayoutResult& exact = references.of(wide, 0);
    RunOptions options;
    options.whole = false;
    options.one = &exact;
    options.routing = &exact.routing;
    options.kernels = c.kernels;
    return bf16_difference(run_threads(deck, options), exact, deck, rounding_bound(deck, c.kernels));
  };
  EXPECT_EQ(failures_of(with_both_kernels(sample(PrecisionName::bf16, 5)), sampled, check), "");
}

#if defined(FORGE_CUDA)
// Extents of which cuBLASLt takes products of codes, on most layouts.
Deck with_wide_matrices(Deck deck) {
  deck.model.width = 32;
  deck.model.ffn = 64;
  if (deck.model.experts > 0) deck.model.expert_ffn = 32;
  if (deck.model.shared_expert_ffn > 0) deck.model.shared_expert_ffn = 64;
  return deck;
}

std::int64_t products_of_cublaslt(const Deck& deck) {
  const RunSetup setup = on_devices(make_setup(deck), device_info().capability);
  std::int64_t count = 0;
  for (const Task& task : step_tasks(setup.share, setup.schedule_of(1), setup.buffers.recompute))
    for (const RowKernel& kernel : segments_of(setup.buffers, setup.share, task).all<RowKernel>())
      count += kernel.name == "fp8_encode";
  return count;
}

// The mean square, relative to a number, of the difference of two roundings to a format that know nothing of each
// other: each is uniform over a spacing, so it is spacing^2 / 6. The spacing of a number m 2^e, 1 <= m < 2, is 2^-bits
// / m of it, and with m as often in any of its ranges as its logarithm says, the mean of 1 / m^2 is 3 / (8 ln 2).
double square_of_two_roundings(Fp8Format format) {
  return std::ldexp(1.0, -2 * layout_of(format).mantissa_bits) * 3 / (8 * std::log(2.0)) / 6;
}

// Tensor cores that cut sums (cut_sum.hpp) change results by 2^-13 of their size or so, and what is rounded to 8 bits
// behind that falls to the other neighbour with a probability of change / spacing: a change d becomes sqrt(d spacing),
// which from one rounding to the next approaches the spacing itself, however small the first one was. So in the worst
// case two runs have nothing in common of what rounding their operands adds. A layer multiplies four times in turn (q,
// k and v, attention's output, up, down), and reads four rounded activations forward and four rounded gradients
// backward; its weights are the same. These errors add up by squares beside those of bf16, and are measured by squares.
// Sums that aren't cut differ by 2^-24, which no operand of these tests' shows.
double bound_of_products(const LayoutCase& c, bool codes) {
  const Deck& deck = c.deck;
  const double bound = rounding_bound(deck, c.kernels);
  if (!codes || sum_step != 0x1p-13) return bound;
  const Fp8RecipeRow& recipe = properties_of(deck.train.fp8_recipe);
  const double rounded = square_of_two_roundings(recipe.operands) + square_of_two_roundings(recipe.gradients);
  return std::hypot(bound, std::sqrt(4 * static_cast<double>(deck.model.layers) * rounded));
}

// "" where a run, with products of codes or without, is as near as rounding lets it be to that of another whose
// products differ in the order of sums.
std::string difference_of_products(LayoutCase c, LayoutCase other, bool codes = false) {
  for (LayoutCase* each : {&c, &other})
    if (const auto rule = illegality(each->deck); !rule.empty()) return "is refused: " + rule;
  const LayoutResult by_other = run_threads(other.deck, {.kernels = other.kernels});
  if (!by_other.problem.empty()) return by_other.problem;
  RunOptions options;
  options.whole = false;
  options.one = &by_other;
  options.routing = &by_other.routing;
  options.codes = codes;
  options.kernels = c.kernels;
  return bf16_difference(run_threads(c.deck, options), by_other, c.deck, bound_of_products(c, codes));
}

// FP8 in each recipe, its products by cuBLASLt, against the same layout with those of the rounded numbers in bf16: they
// differ in the order of sums alone. Not `delayed`, whose first step rounds with scale 1.
TEST(Precisions, CodesAreMultipliedAsRoundedNumbersAre) {
  std::vector<LayoutCase> cases = sample(PrecisionName::fp8, 6);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    TrainDeck& t = cases[i].deck.train;
    t.fp8_recipe = i % 3 == 0 ? Fp8Recipe::block : i % 3 == 1 ? Fp8Recipe::current : Fp8Recipe::row;
    t.fp8_transposed = t.fp8_recipe == Fp8Recipe::block && cases[i].deck.mesh.cp == 1;
    t.fp8_experts = cases[i].deck.model.experts > 0;
    cases[i].deck.model.initial_std = moderate_std;
    cases[i].deck = with_wide_matrices(cases[i].deck);
  }
  const auto check = [&](const LayoutCase& c) -> std::string {
    Deck deck = c.deck;
    if (const auto rule = illegality(deck); !rule.empty()) return "is refused: " + rule;
    if (products_of_cublaslt(deck) == 0) return "has no product that cuBLASLt takes";
    return difference_of_products(c, c, true);
  };
  EXPECT_EQ(failures_of(cases, sampled, check), "");
}

// Models with experts. Their rows are those of this rank, in rounds or at once; those that came from other ranks, the
// same ways; and those of its part of an order that all ranks have.
std::vector<LayoutCase> layouts_of_experts() {
  const auto models = moe_models();
  const MeshDeck one{1, 1, 1, 1, 1}, ep{1, 1, 2, 1, 1, 2, 1}, etp{1, 1, 1, 1, 2, 1, 2}, both{1, 1, 2, 1, 2, 2, 2};
  std::vector<LayoutCase> cases;
  for (const auto& [name, mesh] : {std::pair{"fine", one},
                                   {"drops nothing", one},
                                   {"fine", ep},
                                   {"drops nothing", ep},
                                   {"gathered", both},
                                   {"one expert", etp},
                                   {"drops by position", one}}) {
    const auto model = std::find_if(models.begin(), models.end(), [&](const TestModel& m) { return m.name == name; });
    require(model != models.end(), name);
    Choice choice;
    choice.recompute = cases.size() % 2 == 0 ? Recompute::none : Recompute::full;
    Deck deck = layout_deck(model->deck, mesh, choice, cases.size());
    deck.model.initial_std = moderate_std;
    cases.push_back({name, deck});
  }
  return cases;
}

// Products of experts in one launch against the same layout with one product an expert: they differ in the order of
// sums alone.
TEST(Precisions, GroupedProductsAreThoseOfEachExpert) {
  std::vector<LayoutCase> cases = layouts_of_experts();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Deck& deck = cases[i].deck;
    deck.train.precision = i == 2 ? PrecisionName::fp8 : PrecisionName::bf16;
    deck.train.fp8_experts = i == 2;
    cases[i].kernels.grouped = GroupedProducts::tensor_cores;
  }
  const auto check = [&](const LayoutCase& c) {
    LayoutCase each = c;
    each.kernels.grouped = GroupedProducts::library;
    return difference_of_products(c, each);
  };
  EXPECT_EQ(failures_of(cases, 7, check), "");
}
#endif

}  // namespace
}  // namespace forge::test
