#include "nn/parameter_views.hpp"

#include <gtest/gtest.h>

#include "nn/block.plan.hpp"
#include "nn/units.plan.hpp"

namespace forge::test {

namespace {

ModelSpec small_model(bool biases = false) {
  ModelDeck m;
  m.layers = 1;
  m.width = 24;
  m.heads = 8;
  m.kv_heads = 2;
  m.head_dim = 3;
  m.ffn = 20;
  m.vocabulary = 31;
  m.qkv_bias = m.mlp_bias = biases;
  m.norm = biases ? NormKind::layernorm : NormKind::rmsnorm;
  return resolve_model(m);
}

LocalUnit block_of(const ModelSpec& spec, int tp, int rank) {
  for (const Unit& unit : parameter_units(spec))
    if (unit.kind == UnitKind::block) return local_unit(spec, unit, {tp, rank});
  throw Error("a model has no block");
}

// Where a tensor's piece begins in the unit's buffer.
std::int64_t offset_of(const LocalUnit& unit, const std::string& name) {
  for (const LocalPiece& piece : unit.pieces)
    if (unit.parameters[piece.parameter].name == name) return piece.offset;
  throw Error("a unit has no " + name);
}

}  // namespace

// Members point to where their tensors' pieces stand, on every rank of tp.
TEST(BoundParameters, StandWhereTheirPiecesAre) {
  const ModelSpec spec = small_model(true);
  for (int rank = 0; rank < 4; ++rank) {
    const LocalUnit unit = block_of(spec, 4, rank);
    const std::vector<double> buffer(static_cast<std::size_t>(unit.elements));
    const ModelSpec local = local_spec(spec, 4);
    BlockParameters<const double> b;
    bind(b, local, unit, buffer.data());
    const auto place = [&](const char* name) {
      return buffer.data() + offset_of(unit, std::string("layers.0.") + name);
    };
    EXPECT_EQ(b.attention.qkv.data, place("attention.q"));
    EXPECT_EQ(b.attention.qkv.row(local.q_columns()), place("attention.k")) << "k right below q";
    EXPECT_EQ(b.attention.qkv_bias.data, place("attention.q_bias"));
    EXPECT_EQ(b.attention.out.data, place("attention.out"));
    EXPECT_EQ(b.attention.norm1.weight.data, place("norm1"));
    EXPECT_EQ(b.norm2.bias.data, place("norm2_bias"));
    EXPECT_EQ(b.mlp.up.data, place("mlp.gate"));
    EXPECT_EQ(b.mlp.up.row(local.F()), place("mlp.up"));
    EXPECT_EQ(b.mlp.down.data, place("mlp.down"));
    EXPECT_EQ(b.mlp.down.columns(), local.F());
    EXPECT_EQ(b.mlp.down_bias.data, place("mlp.down_bias"));
    EXPECT_TRUE(b.latent.q_up.empty() && b.moe.router.empty() && b.attention.q_norm.empty());
  }
}

// Gradients of vectors may stand elsewhere, from the unit's first vector on; what has no buffer stays empty.
TEST(BoundParameters, VectorsApart) {
  const ModelSpec spec = small_model(true);
  const LocalUnit unit = block_of(spec, 1, 0);
  std::vector<double> vectors(static_cast<std::size_t>(unit.elements - unit.vectors_begin));
  BlockParameters<double> b;
  bind<double>(b, spec, unit, {}, UnitPart<double>(vectors.data(), unit.vectors_begin));
  EXPECT_TRUE(b.attention.qkv.empty() && b.mlp.down.empty());
  for (const auto& [member, name] :
       {std::pair{b.attention.norm1.weight, "norm1"}, {b.norm2.weight, "norm2"}, {b.mlp.down_bias, "mlp.down_bias"}})
    EXPECT_EQ(member.data - vectors.data(), offset_of(unit, std::string("layers.0.") + name) - unit.vectors_begin)
        << name;
}

// A list that isn't the unit's is an error, never a View of something else.
TEST(BoundParameters, OfAnotherList) {
  const LocalUnit with_biases = block_of(small_model(true), 1, 0), without = block_of(small_model(), 1, 0);
  std::vector<double> buffer(static_cast<std::size_t>(with_biases.elements));
  BlockParameters<double> b;
  EXPECT_THROW(bind(b, small_model(true), without, buffer.data()), Error) << "members that the unit hasn't";
  EXPECT_THROW(bind(b, small_model(), with_biases, buffer.data()), Error) << "members left out";
  EXPECT_THROW(bind(b, local_spec(small_model(), 2), without, buffer.data()), Error) << "other sizes";
}

}  // namespace forge::test
