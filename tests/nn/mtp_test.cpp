#include "nn/mtp.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "../model/recompute_lists.hpp"
#include "block_rig.hpp"
#include "nn/units.plan.hpp"

namespace forge::test {
namespace {

// A module of multi-token prediction behind the rig's model: token table, module and head.
struct MtpRig : BlockRig {
  static ModelDeck deck(double dropout, bool tied, NormKind norm) {
    ModelDeck m = small_model();
    m.mtp_depth = 1;
    m.dropout = dropout;
    m.tied_embeddings = tied;
    m.norm = norm;
    return m;
  }
  static std::vector<LocalUnit> units_of(const ModelSpec& spec) {
    return local_units(spec, parameter_units(spec), {{true, 0, static_cast<int>(spec.L()), 1, true}}, {});
  }

  MtpRig(const ModelDeck& model, Recompute recompute)
      : BlockRig(model, recompute), module(arena, stream, units_of(spec), fp64_precision, {true, {}}) {
    allocate_list([&](BufferLister& l) { input.list(l); }, BufferLister::Part::saved);
    allocate_list([&](BufferLister& l) { l.add(x, "block input", l.S, spec.C()); });
    module_block = saved_of(spec.L());
    auto tokens = values_of(stream, batch.tokens);
    tokens[3] = tokens[10] = -1;  // rows without a token
    set_values(stream, batch.tokens, tokens);
    set_values(stream, batch.token_order, order_of(tokens));
    for (std::size_t u = 0; u < module.size(); ++u) randomise(module.unit(u).master, 200 + u, 0.4, 1.0);
  }

  template <class P>
  P* data(UnitKind kind, std::int64_t layer = -1) const {
    const std::size_t u = find_unit(module.units(), kind, layer);
    if constexpr (std::is_const_v<P>)
      return module.unit(u).whole.data;
    else
      return module.unit(u).sums.data;
  }
  const LocalUnit& local(UnitKind kind, std::int64_t layer = -1) const {
    return module.local(find_unit(module.units(), kind, layer));
  }
  template <class P>
  MtpParameters<P> module_parameters() const {
    return block_parameters_of<P>().mtp;
  }
  template <class P>
  BlockParameters<P> block_parameters_of() const {
    BlockParameters<P> members;
    bind(members, spec, local(UnitKind::block, spec.L()), data<P>(UnitKind::block, spec.L()));
    return members;
  }
  template <class P>
  EmbeddingParameters<P> embedding_table() const {
    return {table_of(spec, local(UnitKind::token_table), data<P>(UnitKind::token_table)), {}};
  }
  template <class P>
  HeadParameters<P> head_parameters_of() const {
    const UnitKind kind = spec.options.tied_embeddings ? UnitKind::token_table : UnitKind::output;
    return head_of_depth(table_of(spec, local(kind), data<P>(kind)), module_parameters<P>());
  }

  MtpInput<T> input_on(View<const double, 2> hidden) const {
    return {context, spec.L(), batch, hidden, input, module_parameters<const T>(), module_parameters<T>()};
  }
  StateNorm<T> norm() const {
    return {context, state.x, state.norm, head_parameters_of<const T>(), head_parameters_of<T>()};
  }
  Block<T> block_of_module() const {
    return block_on(x, spec.L(), block_parameters_of<const T>(), block_parameters_of<T>(), module_block);
  }

  // The depth's loss; with gradients, the head's W and what its B reads.
  double loss(View<const double, 2> hidden, bool gradients) {
    LossSums sums(stream);
    input_on(hidden).forward(embedding_table<const T>(), x);
    block_of_module().forward(state.x);
    norm().forward(state.state);
    Head<T> head{context, batch.labels, {0, spec.V()}, head_parameters_of<const T>().output};
    if (gradients) head.g = head_parameters_of<T>().output;
    head.forward(state.state, state.d_state, {per_label, 0}, sums.loss(), sums.z());
    return sums.get().first * per_label;
  }

  // Adds to d_hidden and all gradients; `split`: split backward, W behind B.
  void backward(View<const double, 2> hidden, View<double, 2> d_hidden, bool split) {
    const Rows d_out = rows(random_rows(1)), d_in = rows(random_rows(1));
    Frame frame(arena);
    Block<T> block = block_of_module();
    MtpInput<T> in = input_on(hidden);
    allocate_list([&](BufferLister& l) { in.b.list(l); }, BufferLister::Part::recomputed);
    norm().backward_input(state.d_state, d_out);
    if (split) {
      add_backward(block);
      block.recompute();
      block.backward_input(d_out, d_in);
    } else {
      BlockRig::backward(block, d_out, d_in);
    }
    in.recompute();
    if (!split) in.backward_weight(d_in);
    in.backward_input(embedding_table<T>(), d_in, d_hidden);
    if (!split) return;
    block.backward_weight(d_out);
    in.backward_weight(d_in);
  }

  static constexpr double per_label = 1.0 / 11;
  ParameterStorage<T> module;
  MtpBuffers<T> input;
  View<T, 2> x;  // (S, C) the module's block's input
  BlockBuffers<T> module_block;
};

struct MtpCase {
  const char* name;
  double dropout;
  bool tied;
  NormKind norm;
};
const MtpCase cases[] = {{"plain", 0, false, NormKind::rmsnorm},
                         {"tied", 0, true, NormKind::rmsnorm},
                         {"dropout", 0.3, false, NormKind::rmsnorm},
                         {"layernorm", 0, true, NormKind::layernorm}};

class MtpTest : public testing::TestWithParam<MtpCase> {
 protected:
  static ModelDeck deck() { return MtpRig::deck(GetParam().dropout, GetParam().tied, GetParam().norm); }
};

// The loss of a depth along a direction in the hidden state and in every parameter: token table, output matrix, module.
TEST_P(MtpTest, LossGradientIsTheAdjoint) {
  MtpRig rig(deck(), Recompute::none);
  const auto hidden0 = rig.random_rows(1), direction = rig.random_rows(2);
  auto hidden = rig.rows(hidden0);
  std::vector<std::vector<double>> values;
  for (std::size_t u = 0; u < rig.module.size(); ++u) values.push_back(rig.values(rig.module.unit(u).master));
  const auto move = [&](double e) {
    hidden.set(moved(hidden0, e, direction));
    for (std::size_t u = 0; u < values.size(); ++u) {
      std::vector<double> here = values[u];
      for (std::size_t i = 0; i < here.size(); ++i) here[i] += 0.3 * e * normal(7 + u, i);
      set_values(rig.stream, rig.module.unit(u).master, here);
    }
  };
  const double by_difference = derivative([&](double e) {
    move(e);
    return rig.loss(hidden, false);
  });
  move(0);
  rig.module.zero_gradients(rig.stream);
  rig.loss(hidden, true);
  const auto d_rows = rig.rows();
  rig.backward(hidden, d_rows, false);
  const auto d_hidden = d_rows.get();
  double by_backward = 0, magnitude = 0;
  const auto add = [&](double term) {
    by_backward += term;
    magnitude += std::abs(term);
  };
  for (std::size_t i = 0; i < d_hidden.size(); ++i) add(d_hidden[i] * direction[i]);
  for (std::size_t u = 0; u < values.size(); ++u) {
    const auto g = rig.values(rig.module.unit(u).gradient);
    for (std::size_t i = 0; i < g.size(); ++i) add(g[i] * 0.3 * normal(7 + u, i));
  }
  EXPECT_NEAR(by_difference, by_backward, derivative_tolerance * (magnitude + std::abs(by_backward)));
}

// Nothing that the module has is left out; the model's own blocks and final norm are not touched.
TEST_P(MtpTest, EveryParameterOfTheModuleHasAGradient) {
  MtpRig rig(deck(), Recompute::none);
  const auto hidden = rig.rows(rig.random_rows(1)), d_hidden = rig.rows(rig.random_rows(3));
  rig.module.zero_gradients(rig.stream);
  rig.loss(hidden, true);
  rig.backward(hidden, d_hidden, false);
  for (std::size_t u = 0; u < rig.module.size(); ++u) {
    const LocalUnit& unit = rig.module.local(u);
    const bool used = unit.layer == rig.spec.L() || unit.kind == UnitKind::token_table || unit.kind == UnitKind::output;
    const auto g = rig.values(rig.module.unit(u).gradient);
    for (const LocalPiece& piece : unit.pieces) {
      double largest = 0;
      for (std::int64_t i = 0; i < piece.box.size(); ++i)
        largest = std::max(largest, std::abs(g[static_cast<std::size_t>(piece.offset + i)]));
      EXPECT_EQ(largest > 0, used) << unit.parameters[piece.parameter].name;
    }
  }
}

TEST_P(MtpTest, RecomputeAndSplitBackwardAreBitwiseEqual) {
  std::vector<std::vector<double>> results;
  for (const Recompute recompute : every_recompute(deck()))
    for (const bool split : {false, true}) {
      MtpRig rig(deck(), recompute);
      const auto hidden = rig.rows(rig.random_rows(1)), d_hidden = rig.rows(rig.random_rows(3));
      rig.module.zero_gradients(rig.stream);
      results.push_back({rig.loss(hidden, true)});
      rig.backward(hidden, d_hidden, split);
      append(results.back(), d_hidden.get());
      for (std::size_t u = 0; u < rig.module.size(); ++u)
        append(results.back(), rig.values(rig.module.unit(u).gradient));
    }
  for (const auto& r : results) EXPECT_EQ(r, results.front());
}

INSTANTIATE_TEST_SUITE_P(Models, MtpTest, testing::ValuesIn(cases),
                         [](const testing::TestParamInfo<MtpCase>& info) { return info.param.name; });

}  // namespace
}  // namespace forge::test
