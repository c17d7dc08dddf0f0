#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "../model/recompute_lists.hpp"
#include "block_rig.hpp"
#include "config/family.hpp"
#include "config/router_score.hpp"

namespace forge::test {
namespace {

struct Case {
  const char* name;
  std::function<void(ModelDeck&)> change;
};

void set_adapter(ModelDeck& m) {
  m.adapter.name = AdapterName::lora;
  m.adapter.rank = 3;
  m.adapter.dropout = 0.4;
}

const Case cases[] = {
    {"llama", [](ModelDeck&) {}},
    {"multi_query", [](ModelDeck& m) { m.kv_heads = 1; }},
    {"multi_head", [](ModelDeck& m) { m.kv_heads = 6; }},
    {"qk_norm", [](ModelDeck& m) { m.qk_norm = true; }},
    {"biases", [](ModelDeck& m) { m.qkv_bias = m.attention_out_bias = m.mlp_bias = true; }},
    {"window", [](ModelDeck& m) { m.sliding_window = 2; }},
    {"own_rotation_of_the_window",
     [](ModelDeck& m) {
       m.sliding_window = 2;
       m.rope_window_theta = 50;
     }},
    {"norms_behind",
     [](ModelDeck& m) {
       m.norm_placement = NormPlacement::behind;
       m.qk_norm = m.qk_norm_whole = m.attention_out_bias = true;
     }},
    {"layernorms_behind",
     [](ModelDeck& m) {
       m.norm_placement = NormPlacement::behind;
       m.norm = NormKind::layernorm;
       m.dropout = 0.3;
     }},
    {"norms_of_both",
     [](ModelDeck& m) {
       m.norm_placement = NormPlacement::both;
       m.activation = Activation::geglu;
       m.qk_norm = m.mlp_bias = true;
       m.query_pre_attn_scalar = 5;
       m.dropout = 0.3;
     }},
    {"scaled_queries",
     [](ModelDeck& m) {
       m.rope_scaling = RopeScaling::yarn;
       m.rope_factor = 4;
       m.rope_original_positions = 2;
       m.query_position_scale = 0.6;
       m.norm_placement = NormPlacement::both;
       m.norm = NormKind::layernorm;
     }},
    {"relu2", [](ModelDeck& m) { m.activation = Activation::relu2; }},
    {"dropout", [](ModelDeck& m) { m.dropout = 0.3; }},
    {"adapters", set_adapter},
    {"adapters_of_latents",
     [](ModelDeck& m) {
       set_latent(m, 9);
       set_adapter(m);
       m.dropout = 0.3;
     }},
    {"adapters_of_direct_latents",
     [](ModelDeck& m) {
       set_latent(m, 0);
       set_adapter(m);
     }},
    {"gpt2",
     [](ModelDeck& m) {
       m.family = Family::gpt2;
       m.norm = NormKind::layernorm;
       m.activation = Activation::gelu_tanh;
       m.positions = PositionKind::learned;
       m.max_positions = 9;
       m.kv_heads = 6;
       m.qkv_bias = m.attention_out_bias = m.mlp_bias = true;
       m.tied_embeddings = true;
     }},
    {"latent", [](ModelDeck& m) { set_latent(m, 9); }},
    {"latent_direct",
     [](ModelDeck& m) {
       set_latent(m, 0);
       m.rope_interleave = true;
       m.dropout = 0.3;
     }},
    {"latent_yarn",
     [](ModelDeck& m) {
       set_latent(m, 5);
       m.rope_interleave = true;
       m.norm = NormKind::layernorm;
       m.attention_out_bias = true;
       m.rope_scaling = RopeScaling::yarn;
       m.rope_factor = 4;
       m.rope_original_positions = 8;
       m.rope_mscale = m.rope_mscale_all_dim = 0.7;
     }},
    {"gated_output",
     [](ModelDeck& m) {
       m.attention_output_gate = m.qk_norm = m.qkv_bias = true;
       m.rope_fraction = 0.5;
     }},
    {"gated_deltanet", set_delta},
    {"gated_deltanet_behind",
     [](ModelDeck& m) {
       set_delta(m);
       m.linear_value_heads = 2;
       m.norm_epsilon = 0.05;
       m.linear_conv_taps = 2;
       m.norm_placement = NormPlacement::both;
       m.norm = NormKind::layernorm;
       m.dropout = 0.3;
     }},
    {"experts",
     [](ModelDeck& m) {
       m.experts = m.experts_per_token = 4;
       m.expert_ffn = 9;
       m.router_renormalise = false;
     }},
    {"chosen_experts",
     [](ModelDeck& m) {
       m.experts = 5;
       m.experts_per_token = 2;
       m.expert_ffn = 9;
       m.router_score = ScoreKind::sigmoid;
       m.router_bias = true;
       m.router_scale = 1.7;
       m.shared_expert_ffn = 11;
       m.shared_expert_gate = true;
       m.dispatch_rows = 0.4;
     }},
    {"jittered_experts",
     [](ModelDeck& m) {
       m.experts = m.experts_per_token = 3;
       m.expert_ffn = 9;
       m.router_jitter = 0.2;
       m.router_score = ScoreKind::softmax_after;
       m.shared_expert_ffn = 11;
       m.dropout = 0.2;
       m.dispatch_rows = 0.7;
     }},
    {"sinks",
     [](ModelDeck& m) {
       m.attention_sinks = m.qkv_bias = m.mlp_bias = true;
       m.sliding_window = 2;
       m.activation = Activation::clamped_swiglu;
       m.activation_limit = 30;  // a limit within reach is a kink in the derivative
       m.activation_alpha = 1.3;
       m.dropout = 0.3;
     }},
    {"biased_experts",
     [](ModelDeck& m) {
       m.attention_sinks = true;
       m.experts = m.experts_per_token = 4;
       m.expert_ffn = 9;
       m.expert_bias = m.router_logit_bias = true;
       m.activation = Activation::clamped_swiglu;
       m.activation_limit = 30;  // a limit within reach is a kink in the derivative
       m.dispatch_rows = 0.7;
       m.shared_expert_ffn = 11;
       m.router_jitter = 0.1;
     }},
    {"gelu_dropout",
     [](ModelDeck& m) {
       m.activation = Activation::gelu;
       m.norm = NormKind::layernorm;
       m.dropout = 0.2;
       m.qk_norm = true;
     }},
};

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

class BlockTest : public testing::TestWithParam<Case> {
 protected:
  static ModelDeck deck() {
    ModelDeck m = small_model();
    GetParam().change(m);
    return m;
  }
};

// <u, J v> = <Jᵀ u, v>, with v a direction in input and all parameters at once.
TEST_P(BlockTest, BackwardIsTheAdjointOfForward) {
  BlockRig rig(deck(), Recompute::none);
  auto x = rig.random_rows(1), u = rig.random_rows(2), vx = rig.random_rows(3);
  std::vector<std::vector<double>> p0, vp;  // by unit
  for (const std::size_t unit : rig.layer_units()) {
    p0.push_back(rig.values(rig.storage.unit(unit).master));
    vp.emplace_back(p0.back().size());
    for (std::size_t i = 0; i < vp.back().size(); ++i) vp.back()[i] = 0.3 * normal(4 + unit, i);
  }
  auto in = rig.rows();
  const auto out = rig.rows(), d_out = rig.rows(u), d_in = rig.rows();

  auto f = [&](double e) {
    in.set(moved(x, e, vx));
    for (std::size_t k = 0; k < p0.size(); ++k)
      set_values(rig.stream, rig.storage.unit(rig.layer_units()[k]).master, moved(p0[k], e, vp[k]));
    rig.block_on(in.view()).forward(out);
    return dot(u, out.get());
  };
  const double forward = derivative(f);
  f(0);
  rig.storage.zero_gradients(rig.stream);
  rig.backward(rig.block_on(in.view()), d_out, d_in);
  const auto dx = d_in.get();
  double backward = dot(dx, vx), scale = 0;
  for (std::size_t i = 0; i < dx.size(); ++i) scale += std::abs(dx[i] * vx[i]);
  for (std::size_t k = 0; k < vp.size(); ++k) {
    const auto g = rig.values(rig.storage.unit(rig.layer_units()[k]).gradient);
    backward += dot(g, vp[k]);
    for (std::size_t i = 0; i < vp[k].size(); ++i) scale += std::abs(g[i] * vp[k][i]);
  }
  // relu2 has a kink in its second derivative, where extrapolation loses order.
  const double tolerance = deck().activation == Activation::relu2 ? 1e-6 : derivative_tolerance;
  EXPECT_NEAR(forward, backward, tolerance * scale);
}

// Every parameter's gradient is touched: none is left out of backward.
TEST_P(BlockTest, EveryParameterHasAGradient) {
  BlockRig rig(deck(), Recompute::none);
  const auto x = rig.rows(rig.random_rows(1)), u = rig.rows(rig.random_rows(2)), out = rig.rows(), dx = rig.rows();
  rig.block_on(x.view()).forward(out);
  rig.storage.zero_gradients(rig.stream);
  rig.backward(rig.block_on(x.view()), u, dx);
  for (const std::size_t u : rig.layer_units()) {
    const LocalUnit& unit = rig.storage.local(u);
    const auto g = rig.values(rig.storage.unit(u).gradient);
    for (const LocalPiece& piece : unit.pieces) {
      const std::string& name = unit.parameters[piece.parameter].name;
      double largest = 0;
      for (std::int64_t i = 0; i < piece.box.size(); ++i)
        largest = std::max(largest, std::abs(g[static_cast<std::size_t>(piece.offset + i)]));
      // The biases send every row to experts 2 and 1.
      const bool idle =
          rig.spec.options.router_bias && (name.find("experts.0") != name.npos || name.find("experts.3") != name.npos ||
                                           name.find("experts.4") != name.npos);
      EXPECT_EQ(largest > 0, !idle) << name;
    }
  }
}

// Recomputing gives the very bits of saving, and a split backward (B, later W) those of both together.
TEST_P(BlockTest, RecomputeAndSplitBackwardAreBitwiseEqual) {
  std::vector<std::vector<double>> results;
  for (const Recompute recompute : every_recompute(deck()))
    for (const bool split : {false, true}) {
      BlockRig rig(deck(), recompute);
      const auto x = rig.rows(rig.random_rows(1)), u = rig.rows(rig.random_rows(2)), out = rig.rows(), dx = rig.rows();
      rig.block_on(x.view()).forward(out);
      Block<double> block = rig.block_on(x.view());
      if (split) {
        rig.add_backward(block);
        block.recompute();
        block.backward_input(u, dx);
        block.backward_weight(u);
      } else {
        rig.backward(block, u, dx);
      }
      results.push_back(out.get());
      append(results.back(), dx.get());
      for (const std::size_t unit : rig.layer_units())
        append(results.back(), rig.values(rig.storage.unit(unit).gradient));
    }
  for (const auto& r : results) EXPECT_EQ(r, results.front());
}

// u = s d(x) Aᵀ, d(x)[r, j] = x[r, j] / (1 - rate) where the word of (sample, position, column) reaches the rate.
TEST(AdapterDropout, FollowsItsFormula) {
  ModelDeck deck = small_model();
  set_adapter(deck);
  BlockRig rig(deck, Recompute::none);
  const auto in = rig.rows(rig.random_rows(1)), out = rig.rows();
  const std::int64_t C = deck.width, rows = rig.buffers.microbatch.rows();
  const auto check = [&](bool training) {
    rig.context.training = training;
    rig.block_on(in.view()).forward(out);
    const AttentionBuffers<double>& b = rig.saved_block.attention;
    const View<const double, 2> a = rig.block().attention.qkv_adapter.a;
    const auto values = [&](const auto& view) {
      return values_of(rig.stream, View<double, 1>(const_cast<double*>(view.data), {{view.rows() * view.columns()}}));
    };
    const std::vector<double> x = values(b.n1), w = values(a), u = values(b.qkv_low.u);
    const std::uint64_t key = random_key(7, Purpose::dropout, 3, std::uint64_t{1} << 32);
    int dropped = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < a.rows(); ++i) {
        double sum = 0, largest = 0;
        for (std::int64_t j = 0; j < C; ++j) {
          const auto words = philox(key, static_cast<std::uint64_t>(40 + r / 7),
                                    static_cast<std::uint64_t>(r % 7) << 32 | static_cast<std::uint64_t>(j / 4));
          const bool kept = !training || words[static_cast<int>(j % 4)] >= 0.4 * 4294967296.0;
          dropped += !kept;
          const double term = x[to_size(r * C + j)] / (training ? 0.6 : 1) * w[to_size(i * C + j)];
          sum += kept ? term : 0;
          largest += std::abs(term);
        }
        EXPECT_NEAR(u[to_size(r * a.rows() + i)], 16.0 / 3 * sum, 1e-14 * 16 * largest) << r << ", " << i;
      }
    EXPECT_EQ(dropped > 0, training);
  };
  check(true);
  check(false);
}

INSTANTIATE_TEST_SUITE_P(Models, BlockTest, testing::ValuesIn(cases), name_of_case);

class HeadTest : public testing::TestWithParam<Case> {};

// Embedding and head together: the loss and the gradients of tables, final norm and (tied) output.
TEST_P(HeadTest, LossGradientIsTheAdjoint) {
  ModelDeck model = small_model();
  GetParam().change(model);
  BlockRig rig(model, Recompute::none);
  const LossScale scale{1.0 / 11, 1e-2};
  // All units but the blocks.
  std::vector<std::size_t> units;
  std::vector<std::vector<double>> values;
  for (std::size_t u = 0; u < rig.storage.size(); ++u)
    if (rig.storage.local(u).kind != UnitKind::block) {
      units.push_back(u);
      values.push_back(rig.values(rig.storage.unit(u).master));
    }
  LossSums sums(rig.stream);
  const Embedding<double> embedding{rig.context, rig.batch};
  auto forward = [&](bool gradients) {
    sums.clear();
    embedding.forward(rig.embedding(), rig.state.x);
    rig.final_norm().forward(rig.state.state);
    rig.head_layer(gradients).forward(rig.state.state, rig.state.d_state, scale, sums.loss(), sums.z());
    const auto [loss, z] = sums.get();
    return (loss + scale.z_coefficient * z) * scale.per_label;
  };
  auto f = [&](double e) {
    for (std::size_t k = 0; k < units.size(); ++k) {
      std::vector<double> here = values[k];
      for (std::size_t i = 0; i < here.size(); ++i) here[i] += e * normal(5 + k, i);
      set_values(rig.stream, rig.storage.unit(units[k]).master, here);
    }
    return forward(false);
  };
  const double by_difference = derivative(f);
  f(0);
  rig.storage.zero_gradients(rig.stream);
  forward(true);
  const auto d = rig.rows(rig.random_rows(9));
  rig.final_norm().backward_input(rig.state.d_state, d);
  embedding.backward_weight(rig.embedding_gradient(), d);
  double by_backward = 0, magnitude = 0;
  for (std::size_t k = 0; k < units.size(); ++k) {
    const auto gradient = rig.values(rig.storage.unit(units[k]).gradient);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double term = gradient[i] * normal(5 + k, i);
      by_backward += term;
      magnitude += std::abs(term);
    }
  }
  EXPECT_NEAR(by_difference, by_backward, derivative_tolerance * (magnitude + std::abs(by_backward)));
}

// The chunk size of the head changes nothing but the order of sums.
TEST_P(HeadTest, ChunksDontMatter) {
  ModelDeck model = small_model();
  GetParam().change(model);
  std::vector<double> losses;
  for (const std::int64_t chunk : {1, 3, 14}) {
    BlockRig rig(model, Recompute::none, {2, 7}, chunk);
    LossSums sums(rig.stream);
    Embedding<double>{rig.context, rig.batch}.forward(rig.embedding(), rig.state.x);
    rig.final_norm().forward(rig.state.state);
    rig.head_layer(false).forward(rig.state.state, rig.state.d_state, {}, sums.loss(), sums.z());
    losses.push_back(sums.get().first);
  }
  EXPECT_NEAR(losses[0], losses[2], 1e-13 * losses[0] * 14);
  EXPECT_NEAR(losses[1], losses[2], 1e-13 * losses[0] * 14);
}

INSTANTIATE_TEST_SUITE_P(Models, HeadTest, testing::ValuesIn(cases), name_of_case);

}  // namespace
}  // namespace forge::test
