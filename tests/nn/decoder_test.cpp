#include "nn/decoder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "block_rig.hpp"
#include "config/family.hpp"
#include "config/fp8_recipe.hpp"
#include "config/router_score.hpp"

namespace forge::test {
namespace {

ModelDeck model_of(int which) {
  ModelDeck m = small_model();
  if (which == 1) {
    m.qk_norm = true;
    m.sliding_window = 5;
    m.tied_embeddings = true;
  }
  if (which == 2) {
    m.family = Family::gpt2;
    m.norm = NormKind::layernorm;
    m.activation = Activation::gelu_tanh;
    m.positions = PositionKind::learned;
    m.max_positions = 200;
    m.kv_heads = 6;
    m.qkv_bias = m.attention_out_bias = m.mlp_bias = true;
  }
  if (which == 3) {
    m.experts = 5;
    m.experts_per_token = 2;
    m.expert_ffn = 9;
    m.router_score = ScoreKind::sigmoid;
    m.router_bias = true;
    m.shared_expert_ffn = 11;
  }
  if (which == 6) {
    m.norm_placement = NormPlacement::behind;
    m.sliding_window = 5;
    m.sliding_window_full_every = 2;
    m.rope_window_theta = 50;
    return m;
  }
  if (which == 7) {
    m.norm_placement = NormPlacement::both;
    m.activation = Activation::geglu;
    m.embedding_scale = 3;
    m.query_pre_attn_scalar = 2;
    m.rope_scaling = RopeScaling::yarn;
    m.rope_factor = 4;
    m.rope_original_positions = 50;
    m.query_position_scale = 0.5;
    return m;
  }
  if (which == 8) {
    m.layers = 3;
    set_delta(m);
    m.linear_conv_taps = 4;
    m.attention_output_gate = true;
    return m;
  }
  if (which >= 4) {
    set_latent(m, which == 4 ? 9 : 0);
    m.rope_interleave = which == 5;
  }
  return m;
}

// The logits behind every token, by the training path over the whole sequence.
std::vector<std::vector<double>> whole_sequence(BlockRig& rig, const std::vector<std::int32_t>& tokens) {
  const std::int64_t rows = rig.buffers.microbatch.rows();
  set_values(rig.stream, rig.batch.tokens, tokens);
  set_values(rig.stream, rig.batch.documents, std::vector<std::int32_t>(tokens.size(), 0));
  auto x = rig.rows();
  const auto out = rig.rows();
  Embedding<double>{rig.context, rig.batch}.forward(rig.embedding(), x);
  for (std::size_t l = 0; l < static_cast<std::size_t>(rig.spec.L()); ++l) {
    Frame frame(rig.arena);
    const std::size_t unit = find_unit(rig.storage.units(), UnitKind::block, static_cast<std::int64_t>(l));
    BlockParameters<const double> w;
    bind(w, rig.spec, rig.storage.local(unit), rig.base<const double>(unit));
    const std::size_t experts = find_unit(rig.storage.units(), UnitKind::experts, static_cast<std::int64_t>(l));
    if (experts != no_unit) bind(w, rig.spec, rig.storage.local(experts), rig.base<const double>(experts));
    rig.block_on(x.view(), static_cast<std::int64_t>(l), w, {}, rig.saved_of(static_cast<std::int64_t>(l)))
        .forward(out);
    x.set(out.get());
  }
  const auto head = rig.head();
  const auto n = rig.rows();
  const DeviceArray<double, 1> mean(rig.stream, {{rows}}), scale(rig.stream, {{rows}});
  const DeviceArray<double, 2> all(rig.stream, {{rows, rig.spec.V()}});
  head_logits<double>(rig.context, head, out, n, {mean, scale}, all);
  const std::vector<double> logits = all.get();
  std::vector<std::vector<double>> result;
  for (std::int64_t r = 0; r < rows; ++r)
    result.emplace_back(logits.begin() + r * rig.spec.V(), logits.begin() + (r + 1) * rig.spec.V());
  return result;
}

std::vector<std::int32_t> some_tokens(std::int64_t length) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < length; ++i)
    tokens.push_back(static_cast<std::int32_t>(mix(3, static_cast<std::uint64_t>(i)) % 23));
  return tokens;
}

#if defined(FORGE_VGPU)
constexpr std::size_t first_piece = 139;  // an emulated device is slow: there pieces are small behind a long one
#else
constexpr std::size_t first_piece = 0;
#endif

constexpr std::int64_t rows_of_a_pass = 128;  // fewer than a long piece has

// Appending in pieces of any size gives the logits of the whole sequence at once: the cache forgets nothing.
void expect_whole_sequence(BlockRig& rig, const std::vector<std::int32_t>& tokens,
                           const std::vector<std::vector<double>>& expected) {
  std::vector<const double*> weights;
  for (std::size_t u = 0; u < rig.storage.size(); ++u) weights.push_back(rig.storage.unit(u).whole.data);
  const auto bias = rig.services.routers.bias;
  const std::vector<double> biases = bias.empty() ? std::vector<double>() : values_of(rig.stream, bias);
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, tokens.size()}) {
    Decoder<double> decoder(rig.stream, rig.spec, fp64_precision, rig.storage.units(), weights, std::ssize(tokens),
                            biases, rig.buffers.rounding, rows_of_a_pass);
    for (std::size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
      end = std::min(begin + (begin == 0 ? std::max(step, first_piece) : step), tokens.size());
      decoder.append(
          {tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.begin() + static_cast<std::ptrdiff_t>(end)});
      const auto logits = decoder.logits();
      double largest = 0;
      for (const double x : expected[end - 1]) largest = std::max(largest, std::abs(x));
      for (std::size_t v = 0; v < logits.size(); ++v)
        ASSERT_NEAR(logits[v], expected[end - 1][v], 1e-12 * largest) << "token " << end << ", piece " << step;
    }
    EXPECT_EQ(decoder.length(), std::ssize(tokens));
    EXPECT_THROW(decoder.append({1}), Error);
  }
}

constexpr std::int64_t length = 150;

class DecoderTest : public testing::TestWithParam<int> {};

TEST_P(DecoderTest, EqualsTheWholeSequence) {
  BlockRig rig(model_of(GetParam()), Recompute::none, {1, length});
  const auto tokens = some_tokens(length);
  expect_whole_sequence(rig, tokens, whole_sequence(rig, tokens));
}

// Scales by token don't depend on how the tokens come, and the training path's products are rounded alike.
TEST_P(DecoderTest, RoundsAsTrainingDoes) {
  if (model_of(GetParam()).full_attention_interval > 0) return;  // not rounded
  BlockRig rig(model_of(GetParam()), Recompute::none, {1, length});
  const auto tokens = some_tokens(length);
  const auto carrier = whole_sequence(rig, tokens);
  for (const Fp8Recipe recipe : {Fp8Recipe::row, Fp8Recipe::block}) {
    Frame frame(rig.arena);
    rig.buffers.rounding.on = true;
    rig.buffers.rounding.recipe = recipe;
    rig.buffers.rounding.experts = rig.spec.E() > 0;
    rig.buffers.rounding.end_block = rig.spec.L();
    RoundingSizes sizes;
    for (std::int64_t layer = 0; layer < rig.spec.L(); ++layer) {
      Segments list(rig.buffers);
      list_block(list, layer, Pass::forward, false);
      for (const ScaledProduct& product : list.scaled) sizes.cover(rig.buffers, product);
    }
    rig.allocate_list([&](BufferLister& l) { rig.services.scratch[0].rounding.list(l, sizes); });
    rig.context.rounding.block = true;
    const auto expected = whole_sequence(rig, tokens);
    EXPECT_GT(std::abs(expected.back()[0] - carrier.back()[0]), 1e-4) << "nothing was rounded";
    expect_whole_sequence(rig, tokens, expected);
    rig.context.rounding.block = false;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderTest, testing::Range(0, 9));

}  // namespace
}  // namespace forge::test
