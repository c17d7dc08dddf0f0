#include "model/flops.hpp"

#include <gtest/gtest.h>

#include "model/parameters.hpp"
#include "models.hpp"
#include "nn/units.plan.hpp"

namespace forge {
namespace {

// Each active matrix of n entries takes 2n operations; what comes on top is attention. Norms are the difference: their
// weights are no products.
TEST(Flops, FollowActiveParameters) {
  constexpr std::int64_t tokens = 4096;
  for (const test::Published& p : test::published_models()) {
    const ModelSpec spec = resolve_model(p.model);
    std::int64_t norms = 0;
    for (const Unit& unit : parameter_units(spec))
      for (const Parameter& parameter : unit.parameters)
        if (parameter.shape.size() == 1) norms += parameter.elements();
    const double attention = static_cast<double>(spec.L()) * 2 *
                             static_cast<double>(spec.H() * (spec.D() + spec.value_dim())) * mean_keys(tokens, 0);
    const double expected = 2 * static_cast<double>(active_parameter_count(spec) - norms) + attention;
    double sum = 0;
    for (const FlopsLine& line : forward_flops_per_token(spec, tokens)) sum += line.forward;
    EXPECT_NEAR(sum / expected, 1, 1e-13) << p.name;
    EXPECT_NEAR(training_flops_per_token(spec, {}, tokens) / (3 * sum), 1, 1e-13) << p.name;
  }
}

// Of the layers below the lowest adapter only the forward pass is computed, of gated DeltaNet as of attention.
TEST(Flops, OfLayersBelowAllAdapters) {
  constexpr std::int64_t tokens = 96;
  const auto of_step = [](const ModelDeck& m) {
    const ModelSpec spec = resolve_model(m);
    std::vector<Unit> units = parameter_units(spec);
    for (Unit& unit : units) unit.frozen = !is_adapter(unit.kind);
    return training_flops_per_token(spec, units, tokens);
  };
  const auto forward = [](const ModelDeck& m) {
    double sum = 0;
    for (const FlopsLine& line : forward_flops_per_token(resolve_model(m), tokens)) sum += line.forward;
    return sum;
  };
  ModelDeck one = test::moe_deck({1, 32, 48, 0, 4, 2, 0, 0, 0, 97, 0}, 8);
  one.adapter.name = AdapterName::lora;
  one.adapter.targets = {"q_proj"};
  ModelDeck two = one;
  two.layers = two.full_attention_interval = 2;
  two.linear_key_heads = two.linear_value_heads = two.linear_key_dim = two.linear_value_dim = 4;
  EXPECT_NEAR(of_step(two) - of_step(one), forward(two) - forward(one), 1e-9 * of_step(two));
}

}  // namespace
}  // namespace forge
