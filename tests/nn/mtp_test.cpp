#include "nn/mtp.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "block_rig.hpp"
#include "model/mtp_buffers.hpp"

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
      : BlockRig(model, recompute), module(arena, stream, units_of(spec), fp64_precision, {}, {true, {}}) {
    set = slot;
    set.add(saved_of_mtp(buffers), arena, Category::activations);
    set.add(saved_of_block(buffers, spec.L()), arena, Category::activations);
    const auto tokens = set.vector<std::int32_t>(Buf::tokens);
    tokens[3] = tokens[10] = -1;  // rows without a token
    sort_rows(Buf::tokens, Buf::token_order);
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
  MtpTensors<P> tensors() const {
    P* base = data<P>(UnitKind::block, spec.L());
    return mtp_tensors(spec, local(UnitKind::block, spec.L()), base, base);
  }
  template <class P>
  BlockTensors<P> block_tensors_of() const {
    return block_tensors(spec, local(UnitKind::block, spec.L()), data<P>(UnitKind::block, spec.L()));
  }
  template <class P>
  EmbeddingTensors<P> table_of() const {
    return {table_tensor(spec, local(UnitKind::token_table), data<P>(UnitKind::token_table)), {}};
  }
  template <class P>
  HeadTensors<P> head_tensors_of() const {
    const UnitKind kind = spec.options.tied_embeddings ? UnitKind::token_table : UnitKind::output;
    return head_tensors(table_tensor(spec, local(kind), data<P>(kind)), tensors<P>());
  }

  // The depth's loss; with gradients, the head's W and what its B reads.
  double loss(View<const double, 2> hidden, bool gradients) {
    double sums[2] = {0, 0};
    Frame frame(arena);
    BufferSet s = set;
    s.add(rebuilt_of_mtp(buffers), arena, Category::workspace);
    embed_forward<T>(context, table_of<const T>(), s, s.matrix<T>(Buf::mtp_embedding), spec.L());
    mtp_input_forward<T>(context, tensors<const T>(), hidden, s);
    block_forward<T>(context, spec.L(), block_tensors_of<const T>(), s, s.matrix<T>(Buf::x_final));
    const HeadTensors<T> g = head_tensors_of<T>();
    final_norm_forward<T>(context, head_tensors_of<const T>(), s);
    head_forward<T>(context, head_tensors_of<const T>(), gradients ? &g : nullptr, s, {0, spec.V()}, {per_label, 0},
                    View<double, 1>(sums, {{1}}), View<double, 1>(sums + 1, {{1}}));
    return sums[0] * per_label;
  }

  // Adds to d_hidden and all gradients; `split`: W apart from B.
  void backward(View<const double, 2> hidden, View<double, 2> d_hidden, bool split) {
    std::vector<double> out = random_rows(1), in = random_rows(1);
    const View<T, 2> d_out = rows_of(out), d_in = rows_of(in);
    Frame frame(arena);
    BufferSet s = set;
    for (const BufferList& list :
         {rebuilt_of_block(buffers, spec.L()), gradients_of_block(buffers, spec.L()), rebuilt_of_mtp(buffers)})
      s.add(list, arena, Category::workspace);
    const auto w = block_tensors_of<const T>();
    const auto g = block_tensors_of<T>();
    head_backward_input<T>(context, head_tensors_of<const T>(), head_tensors_of<T>(), s, d_out);
    if (split) {
      block_rebuild<T>(context, spec.L(), w, s);
      block_backward_input<T>(context, spec.L(), w, g, s, d_out, d_in);
    } else {
      block_backward(context, spec.L(), w, g, set, d_out, d_in);
    }
    mtp_input_rebuild<T>(context, tensors<const T>(), hidden, s);
    if (!split) mtp_input_backward_weight<T>(context, tensors<T>(), s, d_in);
    {
      Frame scratch(arena);
      BufferSet all = s;
      all.add(scratch_backward_mtp(buffers), arena, Category::workspace);
      mtp_input_backward<T>(context, spec.L(), tensors<const T>(), tensors<T>(), table_of<T>(), hidden, all, d_in,
                            d_hidden);
    }
    if (!split) return;
    block_backward_weight<T>(context, spec.L(), g, s, d_out);
    mtp_input_backward_weight<T>(context, tensors<T>(), s, d_in);
  }

  static constexpr double per_label = 1.0 / 11;
  ParameterStorage<T> module;
  BufferSet set;
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
  auto hidden = hidden0;
  std::vector<std::vector<double>> values;
  for (std::size_t u = 0; u < rig.module.size(); ++u) {
    const auto x = rig.module.unit(u).master;
    values.emplace_back(x.data, x.data + x.size());
  }
  const auto move = [&](double e) {
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = hidden0[i] + e * direction[i];
    for (std::size_t u = 0; u < values.size(); ++u)
      for (std::size_t i = 0; i < values[u].size(); ++i)
        rig.module.unit(u).master.data[i] = values[u][i] + 0.3 * e * normal(7 + u, i);
  };
  const double by_difference = derivative([&](double e) {
    move(e);
    return rig.loss(rig.rows_of(hidden), false);
  });
  move(0);
  rig.module.zero_gradients(rig.stream);
  rig.loss(rig.rows_of(hidden), true);
  std::vector<double> d_hidden(hidden.size(), 0);
  rig.backward(rig.rows_of(hidden), rig.rows_of(d_hidden), false);
  double by_backward = 0, magnitude = 0;
  const auto add = [&](double term) {
    by_backward += term;
    magnitude += std::abs(term);
  };
  for (std::size_t i = 0; i < d_hidden.size(); ++i) add(d_hidden[i] * direction[i]);
  for (std::size_t u = 0; u < values.size(); ++u)
    for (std::size_t i = 0; i < values[u].size(); ++i)
      add(rig.module.unit(u).gradient[static_cast<std::int64_t>(i)] * 0.3 * normal(7 + u, i));
  EXPECT_NEAR(by_difference, by_backward, derivative_tolerance * (magnitude + std::abs(by_backward)));
}

// Nothing that the module has is left out; the model's own blocks and final norm are not touched.
TEST_P(MtpTest, EveryParameterOfTheModuleHasAGradient) {
  MtpRig rig(deck(), Recompute::none);
  auto hidden = rig.random_rows(1), d_hidden = rig.random_rows(3);
  rig.module.zero_gradients(rig.stream);
  rig.loss(rig.rows_of(hidden), true);
  rig.backward(rig.rows_of(hidden), rig.rows_of(d_hidden), false);
  for (std::size_t u = 0; u < rig.module.size(); ++u) {
    const LocalUnit& unit = rig.module.local(u);
    const bool used = unit.layer == rig.spec.L() || unit.kind == UnitKind::token_table || unit.kind == UnitKind::output;
    for (const LocalPiece& piece : unit.pieces) {
      double largest = 0;
      for (std::int64_t i = 0; i < piece.box.size(); ++i)
        largest = std::max(largest, std::abs(rig.module.unit(u).gradient[piece.offset + i]));
      EXPECT_EQ(largest > 0, used) << unit.parameters[piece.parameter].name;
    }
  }
}

TEST_P(MtpTest, RecomputeAndSplitBackwardAreBitwiseEqual) {
  std::vector<std::vector<double>> results;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    for (const bool split : {false, true}) {
      MtpRig rig(deck(), recompute);
      auto hidden = rig.random_rows(1), d_hidden = rig.random_rows(3);
      rig.module.zero_gradients(rig.stream);
      results.push_back({rig.loss(rig.rows_of(hidden), true)});
      rig.backward(rig.rows_of(hidden), rig.rows_of(d_hidden), split);
      results.back().insert(results.back().end(), d_hidden.begin(), d_hidden.end());
      for (std::size_t u = 0; u < rig.module.size(); ++u) {
        const auto g = rig.module.unit(u).gradient;
        results.back().insert(results.back().end(), g.data, g.data + g.size());
      }
    }
  for (const auto& r : results) EXPECT_EQ(r, results.front());
}

INSTANTIATE_TEST_SUITE_P(Models, MtpTest, testing::ValuesIn(cases),
                         [](const testing::TestParamInfo<MtpCase>& info) { return info.param.name; });

}  // namespace
}  // namespace forge::test
