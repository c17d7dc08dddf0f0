#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "config/family.hpp"
#include "initial_formula.hpp"
#include "model/parameters.hpp"
#include "models.hpp"
#include "nn/units.plan.hpp"

namespace forge {
namespace {

struct Model {
  const char* name;
  ModelDeck deck;
};

// Every kind of parameter: dense with biases and learned positions; latent attention, experts, a gate of the shared
// ones, two depths of multi-token prediction.
std::vector<Model> models() {
  ModelDeck dense = test::moe_deck({4, 48, 72, 0, 4, 2, 0, 0, 0, 131, 0}, 12);
  dense.family = Family::gpt2;
  dense.norm = NormKind::layernorm;
  dense.activation = Activation::gelu_tanh;
  dense.positions = PositionKind::learned;
  dense.max_positions = 40;
  dense.kv_heads = 4;
  dense.qkv_bias = dense.attention_out_bias = dense.mlp_bias = dense.tied_embeddings = true;
  dense.residual_scaling = false;
  ModelDeck experts = test::moe_deck({3, 48, 60, 24, 4, 0, 4, 2, 1, 131, 1}, 0);
  experts.family = Family::deepseek_v3;
  experts.attention = AttentionKind::mla;
  experts.q_lora = 28, experts.kv_lora = 20, experts.nope_dim = 8, experts.rope_dim = 4, experts.value_dim = 10;
  experts.shared_expert_gate = experts.router_bias = true;
  experts.mtp_depth = 2;
  return {{"dense", dense}, {"experts", experts}};
}

std::vector<Parameter> parameters_of(const ModelDeck& deck) {
  std::vector<Parameter> all;
  for (const Unit& unit : parameter_units(resolve_model(deck)))
    all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
  return all;
}

std::vector<double> values_of(std::uint64_t seed, const Parameter& p) {
  std::vector<double> values(static_cast<std::size_t>(p.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = initial_values(seed, p)(static_cast<std::int64_t>(i));
  return values;
}

// Parameters that are drawn, with their numbers in units of the standard deviation that the formula gives them.
struct Drawn {
  std::string name;
  std::vector<double> values;
};
std::vector<Drawn> drawn(const ModelDeck& deck, std::uint64_t seed) {
  const test::InitialFormula formula(seed, deck);
  std::vector<Drawn> all;
  for (const Parameter& p : parameters_of(deck)) {
    if (formula.deviation(p.name) == 0) continue;
    all.push_back({p.name, values_of(seed, p)});
    for (double& v : all.back().values) v /= formula.deviation(p.name);
  }
  return all;
}

// Σ a b / n: of independent standard normal numbers, its standard deviation is 1/√n.
double correlation(const std::vector<double>& a, const std::vector<double>& b, std::size_t shift = 0) {
  const std::size_t n = std::min(a.size(), b.size() - shift);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i + shift];
  return sum / static_cast<double>(n);
}

// Six standard deviations of an estimate from n numbers. Of 5,100 such estimates, independent numbers would have one
// further off in one drawing of 100,000; these are always the same.
double bound(std::size_t n) {
  return 6 / std::sqrt(static_cast<double>(n));
}

TEST(InitialValues, AreTheDocumentedFormula) {
  std::size_t compared = 0;
  for (const Model& model : models())
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0}}) {
      const test::InitialFormula formula(seed, model.deck);
      for (const Parameter& p : parameters_of(model.deck)) {
        const std::vector<double> values = values_of(seed, p);
        for (std::size_t i = 0; i < values.size(); ++i, ++compared) {
          const long double exact = formula.value(p.name, i);
          ASSERT_LE(std::abs(values[i] - exact), formula.tolerance(exact)) << p.name << " element " << i;
        }
      }
    }
  EXPECT_EQ(compared, 3u * (74832 + 137568));
  // Elements behind 2³²: the counter's upper word.
  const ModelDeck deck = models()[0].deck;
  const Parameter table = parameters_of(deck).front();
  for (const std::int64_t i : {std::int64_t{1} << 32, (std::int64_t{1} << 40) + 5}) {
    const test::InitialFormula formula(7, deck);
    const long double exact = formula.value(table.name, static_cast<std::uint64_t>(i));
    EXPECT_LE(std::abs(initial_values(7, table)(i) - exact), formula.tolerance(exact));
  }
}

// The formula in Python, with its own integers, gave these.
TEST(InitialValues, KnownAnswers) {
  Parameter p;
  p.name = "layers.3.mlp.up";
  p.initial = Initial::normal;
  p.std = 1;
  const double answers[] = {0.19616026231489214,  -0.9604980198692066, 0.8080710950705348,
                            -0.32614321786137657, 0.181414101429391,   -0.9877943743131845};
  for (std::size_t i = 0; i < std::size(answers); ++i)
    EXPECT_NEAR(initial_values(42, p)(static_cast<std::int64_t>(i)), answers[i], 2e-14) << i;
}

TEST(InitialValues, HaveMeanZeroAndTheirDeviation) {
  std::size_t tested = 0;
  for (const Model& model : models())
    for (const Drawn& p : drawn(model.deck, 11)) {
      double mean = 0, square = 0;
      const auto n = static_cast<double>(p.values.size());
      for (const double v : p.values) mean += v / n, square += v * v / n;
      EXPECT_LE(std::abs(mean), bound(p.values.size())) << p.name;
      // The variance of a normal number's square is 2.
      EXPECT_LE(std::abs(square - 1), std::sqrt(2.0) * bound(p.values.size())) << p.name;
      ++tested;
    }
  EXPECT_EQ(tested, 18u + 100u);
}

// Between any two parameters, and so between layers, experts and depths; and within one, between neighbours and between
// rows.
TEST(InitialValues, AreIndependent) {
  std::size_t pairs = 0;
  for (const Model& model : models()) {
    const std::vector<Drawn> all = drawn(model.deck, 12);
    for (std::size_t a = 0; a < all.size(); ++a) {
      for (std::size_t b = a + 1; b < all.size(); ++b, ++pairs) {
        const std::size_t n = std::min(all[a].values.size(), all[b].values.size());
        EXPECT_LE(std::abs(correlation(all[a].values, all[b].values)), bound(n)) << all[a].name << ", " << all[b].name;
      }
      for (const std::size_t shift : {std::size_t{1}, static_cast<std::size_t>(model.deck.width)}) {
        const std::vector<double>& values = all[a].values;
        if (values.size() <= 2 * shift) continue;
        EXPECT_LE(std::abs(correlation(values, values, shift)), bound(values.size() - shift)) << all[a].name;
      }
    }
  }
  EXPECT_EQ(pairs, 18u * 17 / 2 + 100u * 99 / 2);
}

TEST(InitialValues, OfSeedsAreIndependent) {
  const ModelDeck deck = models()[0].deck;
  const auto one = drawn(deck, 1), two = drawn(deck, 2);
  for (std::size_t p = 0; p < one.size(); ++p)
    EXPECT_LE(std::abs(correlation(one[p].values, two[p].values)), bound(one[p].values.size())) << one[p].name;
}

}  // namespace
}  // namespace forge
