#include "layout/local_units.hpp"

#include <gtest/gtest.h>

namespace forge {
namespace {

// One dense layer, one with experts.
ModelDeck two_layers() {
  ModelDeck m;
  m.layers = 2, m.width = 32, m.ffn = 48, m.heads = 4, m.vocabulary = 97;
  m.experts = 6, m.experts_per_token = 2, m.expert_ffn = 24, m.shared_expert_ffn = 24, m.first_dense_layers = 1;
  return m;
}

ModelDeck latent_attention() {
  ModelDeck m = two_layers();
  m.family = Family::deepseek_v3;
  m.attention = AttentionKind::mla;
  m.q_lora = 20, m.kv_lora = 12, m.nope_dim = 6, m.rope_dim = 4, m.value_dim = 10;
  return m;
}

// Vectors that tp splits beside matrices that it replicates.
ModelDeck biased_attention() {
  ModelDeck m = two_layers();
  m.kv_heads = 2;
  m.qkv_bias = m.shared_expert_gate = true;
  return m;
}

// Every element of every tensor is owned by one tensor-parallel rank, and pieces fill a rank's buffer without overlap,
// with what tp replicates in one stretch.
TEST(LocalUnits, TensorParallelRanksOwnEachElementOnce) {
  for (const ModelDeck& deck : {latent_attention(), biased_attention()})
    for (const int tp : {1, 2, 4}) {
      const ModelSpec spec = resolve_model(deck);
      for (const Unit& unit : parameter_units(spec)) {
        if (unit.kind == UnitKind::experts) continue;
        std::vector<std::int64_t> owned(unit.parameters.size(), 0);
        for (int rank = 0; rank < tp; ++rank) {
          const LocalUnit local = local_unit(spec, unit, {tp, rank, 1});
          std::int64_t end = 0;
          for (const LocalPiece& piece : local.pieces) {
            EXPECT_GE(piece.offset, end);
            end = piece.offset + piece.box.size();
            const Parameter& p = local.parameters[piece.parameter];
            if (piece.owned) owned[piece.parameter] += piece.box.size();
            const bool whole = piece.box.size() == p.elements() && tp > 1;
            const bool replicated = piece.offset >= local.replicated_begin && piece.offset < local.replicated_end;
            EXPECT_EQ(whole, replicated && tp > 1) << p.name << " tp " << tp;
          }
          EXPECT_LE(end, local.elements);
        }
        for (std::size_t i = 0; i < owned.size(); ++i)
          EXPECT_EQ(owned[i], unit.parameters[i].elements()) << unit.parameters[i].name << " tp " << tp;
      }
    }
}

}  // namespace
}  // namespace forge
