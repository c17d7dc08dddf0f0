#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "cover.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr double eps64 = 0x1p-53, eps32 = 0x1p-24, eps_bf16 = 0x1p-8;

// One layout of every mesh of these numbers of ranks.
std::vector<LayoutCase> sample(PrecisionName precision, std::uint64_t key) {
  std::vector<LayoutCase> cases;
  for (const int ranks : {2, 4, 6, 8, 12})
    for (const auto& list : {drawn_layouts(ranks, key), drawn_moe_layouts(ranks, key)})
      for (LayoutCase c : list) {
        // What is dropped by probability isn't replayed, and close ones change places.
        if (c.deck.model.capacity_drop == CapacityDrop::probability) continue;
        c.deck.train.precision = precision;
        cases.push_back(c);
      }
  return cases;
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
  EXPECT_EQ(failures_of(sample(PrecisionName::fp32, 4), check), "");
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// How far a run in bf16 is from the result in fp64, by tensor.
Deviations distances(const Deck& deck, const LayoutResult& exact) {
  RunOptions options;
  options.whole = false;
  options.one = &exact;
  options.routing = &exact.routing;
  const LayoutResult result = run_threads(deck, options);
  if (!result.problem.empty()) throw Error(result.problem);
  Deviations all = result.gradient_deviations;
  all["loss"] = {std::abs(result.loss - exact.loss), 1};
  all["norm"] = {std::abs(result.grad_norm - exact.grad_norm), 1};
  return all;
}

// Rounding in bf16 moves a gradient by some distance from its true value, on one rank as on many. What a tensor's
// distance is depends on chance and on what cancels in it, and partial results of several ranks are rounded one by one:
// so a tensor is held to the worst tensor of one rank, not to its own. The floor is 4 eps of the largest entry.
std::string bf16_difference(const Deck& layout, References& references) {
  Deck deck = layout, wide = layout;
  wide.train.precision = PrecisionName::fp64;
  for (Deck* d : {&deck, &wide})
    if (const auto rule = illegality(*d); !rule.empty()) return "is refused: " + rule;
  Deck one = one_rank(deck);
  if (const auto rule = illegality(one); !rule.empty()) return "no reference: " + rule;
  const LayoutResult& exact = references.of(wide, 0);
  const Deviations of_layout = distances(deck, exact), of_one = distances(one, exact);
  double all = 0;
  for (const auto& [name, values] : exact.gradients) all = std::max(all, largest_of(values));
  auto size_of = [&](const std::string& name) {
    if (name == "loss") return exact.loss;
    return name == "norm" ? exact.grad_norm : std::max(largest_of(exact.gradients.at(name)), 1e-3 * all);
  };
  double worst = 0;
  for (const auto& [name, deviation] : of_one) worst = std::max(worst, deviation.largest / size_of(name));
  for (const auto& [name, deviation] : of_layout) {
    const double size = size_of(name);
    const bool number = name == "loss" || name == "norm";
    const double bound = (4 * (number ? of_one.at(name).largest / size : worst) + 4 * eps_bf16) * size;
    if (!(deviation.largest <= bound))
      return name + " is " + std::to_string(deviation.largest / size) + " from fp64, one rank " +
             std::to_string(of_one.at(name).largest / size);
  }
  return of_layout.size() == exact.gradients.size() + 2 ? "" : "tensors are missing";
}

TEST(Precisions, Bf16IsAsFarFromFp64AsOneRank) {
  References references;
  EXPECT_EQ(failures_of(sample(PrecisionName::bf16, 5),
                        [&](const LayoutCase& c) { return bf16_difference(c.deck, references); }),
            "");
}

}  // namespace
}  // namespace forge::test
