#include <gtest/gtest.h>

#include <cmath>

#include "core/error.hpp"
#include "model/rotary_table.hpp"
#include "models.hpp"

namespace forge {
namespace {

std::vector<std::int64_t> moe_layers(const ModelDeck& deck) {
  std::vector<std::int64_t> layers;
  const ModelSpec spec = resolve_model(deck);
  for (std::int64_t l = 0; l < spec.L(); ++l)
    if (spec.is_moe(l)) layers.push_back(l);
  EXPECT_EQ(static_cast<std::int64_t>(layers.size()), spec.moe_layers());
  return layers;
}

ModelDeck small(std::int64_t layers) {
  return test::moe_deck({layers, 32, 48, 24, 4, 2, 6, 2, 0, 97, 0}, 8);
}

using Layers = std::vector<std::int64_t>;

TEST(Spec, LayersWithExperts) {
  ModelDeck m = small(6);
  EXPECT_EQ(moe_layers(m), (Layers{0, 1, 2, 3, 4, 5}));
  m.moe_every = 2;  // layers 2, 4, 6, counted from 1
  EXPECT_EQ(moe_layers(m), (Layers{1, 3, 5}));
  m.dense_layers = {3};
  EXPECT_EQ(moe_layers(m), (Layers{1, 5}));
  m.first_dense_layers = 2;
  EXPECT_EQ(moe_layers(m), (Layers{5}));
  m.experts = 0;
  EXPECT_EQ(moe_layers(m), Layers{});
}

TEST(Spec, LayersOfMultiTokenPredictionAreLikeTheLastOne) {
  ModelDeck m = small(3);
  m.mtp_depth = 2;
  m.first_dense_layers = 2;
  EXPECT_TRUE(resolve_model(m).is_moe(4));
  m.dense_layers = {2};
  EXPECT_FALSE(resolve_model(m).is_moe(3));
}

TEST(Spec, LayersOfMultiTokenPredictionHaveAttention) {
  ModelDeck m = small(3);
  m.mtp_depth = 1;
  m.full_attention_interval = 2;
  EXPECT_TRUE(resolve_model(m).linear(2));
  EXPECT_FALSE(resolve_model(m).linear(3));
}

TEST(Spec, LatentAttention) {
  const ModelSpec s = resolve_model(test::mla_deck({2, 64, 96, 32, 4, 0, 8, 2, 1, 97, 1}, 24));
  EXPECT_EQ(s.D(), 192);
  EXPECT_EQ(s.K(), 4);
  EXPECT_EQ(s.q_columns(), 4 * 192);
  EXPECT_EQ(s.o_columns(), 4 * 128);
  EXPECT_EQ(s.kv_up_columns(), 4 * 256);
  EXPECT_EQ(s.kv_down_columns(), 576);
  EXPECT_EQ(s.q_up_inputs(), 24);
  EXPECT_EQ(rotary_frequencies(s).inverse.size(), 32u) << "rope turns rope_dim entries only";
  const ModelSpec standard = resolve_model(small(1));
  EXPECT_EQ(standard.o_columns(), standard.q_columns());
  EXPECT_EQ(standard.rotary_dim(), standard.D());
}

// The frequencies of a part of each head are those of a head of that size; layers without positions are counted from 1.
TEST(Spec, PartsWithoutRotation) {
  ModelDeck m = small(1);
  const auto whole = rotary_frequencies(resolve_model(m)).inverse;
  m.head_dim = 16, m.rope_fraction = 0.5, m.no_rope_every = 2, m.layers = 4;
  const ModelSpec s = resolve_model(m);
  EXPECT_EQ(s.rotary_dim(), 8);
  EXPECT_EQ(rotary_frequencies(s).inverse, whole);
  EXPECT_TRUE(s.rotates(0) && !s.rotates(1) && s.rotates(2) && !s.rotates(3));
  EXPECT_FALSE(s.rotates(4)) << "multi-token prediction's are as the last one";
}

// Layers with a window have the second of two tables, whose wavelengths are not stretched.
TEST(Spec, LayersWithoutTheWindow) {
  ModelDeck m = small(1);
  m.layers = 6, m.sliding_window = 5, m.sliding_window_layer = 1, m.sliding_window_full_every = 3;
  const ModelSpec s = resolve_model(m);
  const std::vector<std::int64_t> windows{0, 5, 0, 5, 5, 0, 0};  // multi-token prediction's are as the last one
  for (std::int64_t layer = 0; layer < std::ssize(windows); ++layer)
    EXPECT_EQ(s.window(layer), windows[static_cast<std::size_t>(layer)]) << "layer " << layer;
  EXPECT_EQ(s.rotary_tables(), 1);
  m.rope_window_theta = m.rope_theta;
  const auto plain = rotary_frequencies(resolve_model(m)).inverse;
  m.rope_scaling = RopeScaling::linear, m.rope_factor = 2;
  const ModelSpec two = resolve_model(m);
  EXPECT_EQ(two.rotary_table_of(1), 1);
  EXPECT_EQ(two.rotary_table_of(2), 0);
  EXPECT_EQ(rotary_frequencies(two, 1).inverse, plain);
  EXPECT_NE(rotary_frequencies(two, 0).inverse, plain);
  EXPECT_EQ(rotary_table(two, 3).cosine.size(), 2 * 3 * plain.size());
}

// Queries that a scale by position multiplies have tables of their own behind those of keys; it grows by whole
// contexts.
TEST(Spec, QueriesByPosition) {
  ModelDeck m = small(2);
  m.sliding_window = 5, m.sliding_window_full_every = 2, m.rope_window_theta = 100;
  m.rope_scaling = RopeScaling::yarn, m.rope_factor = 4, m.rope_original_positions = 3, m.query_position_scale = 0.5;
  const ModelSpec s = resolve_model(m);
  EXPECT_EQ(s.rotary_tables(), 4);
  EXPECT_EQ(s.rotary_table_of(1), 0);
  EXPECT_EQ(s.rotary_table_of(1, true), 1);
  EXPECT_EQ(s.rotary_table_of(0), 2);
  EXPECT_EQ(s.rotary_table_of(0, true), 3);
  constexpr std::size_t positions = 7;
  const RotaryTable table = rotary_table(s, positions);
  const std::size_t half = static_cast<std::size_t>(s.rotary_dim() / 2), size = positions * half;
  ASSERT_EQ(table.cosine.size(), 4 * size);
  for (const std::size_t base : {std::size_t{0}, 2 * size})
    for (std::size_t i = 0; i < size; ++i) {
      const double factor = 1 + 0.5 * std::log(1.0 + static_cast<double>(i / half / 3));
      EXPECT_DOUBLE_EQ(table.cosine[base + size + i], factor * table.cosine[base + i]) << i;
      EXPECT_DOUBLE_EQ(table.sine[base + size + i], factor * table.sine[base + i]) << i;
    }
}

// DeepSeek's yarn changes the scale of the scores: by its mscale_all_dim, squared, whatever the factor on cosines is.
TEST(Spec, SoftmaxScale) {
  ModelDeck scaled = small(1);
  scaled.query_pre_attn_scalar = 16;
  EXPECT_DOUBLE_EQ(resolve_model(scaled).softmax_scale(), 0.25);
  ModelDeck m = test::mla_deck({2, 64, 96, 32, 4, 0, 8, 2, 1, 97, 1}, 0);
  EXPECT_DOUBLE_EQ(resolve_model(m).softmax_scale(), 1 / std::sqrt(192.0));
  m.rope_scaling = RopeScaling::yarn, m.rope_factor = 40, m.rope_original_positions = 4096;
  m.rope_mscale = 1;
  EXPECT_DOUBLE_EQ(resolve_model(m).softmax_scale(), 1 / std::sqrt(192.0));
  m.rope_mscale_all_dim = 1;
  const double mscale = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(resolve_model(m).softmax_scale(), mscale * mscale / std::sqrt(192.0));
  EXPECT_DOUBLE_EQ(rotary_frequencies(resolve_model(m)).attention_factor, 1);
  ModelDeck standard = small(1);
  standard.rope_scaling = RopeScaling::yarn, standard.rope_factor = 40, standard.rope_original_positions = 64;
  standard.rope_mscale_all_dim = 1;
  EXPECT_DOUBLE_EQ(resolve_model(standard).softmax_scale(), 1 / std::sqrt(8.0));
}

TEST(Spec, ImpossibleModels) {
  ModelDeck m = small(2);
  m.experts_per_token = 7;
  EXPECT_THROW(resolve_model(m), BadInput);
  m = test::mla_deck({2, 64, 96, 32, 4, 0, 8, 2, 1, 97, 1}, 0);
  m.kv_heads = 2;
  EXPECT_THROW(resolve_model(m), BadInput);
  m.kv_heads = 0, m.kv_lora = 0;
  EXPECT_THROW(resolve_model(m), BadInput);
}

}  // namespace
}  // namespace forge
