#include "layout/local_units.hpp"

#include <gtest/gtest.h>

#include "config/family.hpp"
#include "core/error.hpp"
#include "nn/units.plan.hpp"

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

// q, k and v in one tensor.
ModelDeck fused_attention() {
  ModelDeck m = two_layers();
  m.family = Family::gpt2;
  m.kv_heads = 2;
  m.experts = m.first_dense_layers = m.shared_expert_ffn = 0;
  m.qkv_bias = m.attention_out_bias = m.mlp_bias = true;
  return m;
}

// Every element of every tensor is owned by one tensor-parallel rank, and pieces fill a rank's buffer without overlap,
// with what tp replicates in one stretch.
TEST(LocalUnits, TensorParallelRanksOwnEachElementOnce) {
  for (const ModelDeck& deck : {latent_attention(), biased_attention(), fused_attention()})
    for (const int tp : {1, 2, 4}) {
      const ModelSpec spec = resolve_model(deck);
      for (const Unit& unit : parameter_units(spec)) {
        if (unit.kind == UnitKind::experts) continue;
        std::vector<std::int64_t> owned(unit.parameters.size(), 0);
        for (int rank = 0; rank < tp; ++rank) {
          const LocalUnit local = local_unit(spec, unit, {tp, rank});
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

// Each row that is split so is held by as many neighbours as the piece says, and owned by the first of them.
TEST(Splits, EachElementHasOneOwnerAndItsCopies) {
  int cases = 0;
  for (const std::int64_t granules : {1, 2, 4, 6, 13})
    for (const std::int64_t granule : {1, 3})
      for (const std::int64_t begin : {0, 5})
        for (const bool copies : {false, true})
          for (const int ranks : {1, 2, 3, 4, 8}) {
            if (copies && granules < ranks && ranks % granules != 0) continue;
            const std::int64_t rows = granules * granule;
            const Split split{0, granule, copies, begin, begin > 0 ? rows : 0};
            std::vector<int> holders(static_cast<std::size_t>(rows), 0), owners = holders;
            for (int rank = 0; rank < ranks; ++rank) {
              const SplitPiece piece = piece_of(split, begin + rows, ranks, rank);
              ASSERT_EQ(piece.copies, copies && granules < ranks ? ranks / granules : 1);
              ASSERT_LE(piece.range.size(), piece.extent);
              const int pieces = ranks / piece.copies;
              ASSERT_EQ(piece.extent, (granules + pieces - 1) / pieces * granule);
              ASSERT_EQ(piece.range.size() % granule, 0);
              for (std::int64_t row = piece.range.begin; row < piece.range.end; ++row) {
                ++holders.at(static_cast<std::size_t>(row - begin));
                owners[static_cast<std::size_t>(row - begin)] += rank % piece.copies == 0;
              }
            }
            const int all = copies && granules < ranks ? ranks / static_cast<int>(granules) : 1;
            ASSERT_EQ(holders, std::vector<int>(holders.size(), all));
            ASSERT_EQ(owners, std::vector<int>(owners.size(), 1));
            ++cases;
          }
  EXPECT_EQ(cases, 192);  // 200, without 2 or 6 granules on ranks that they don't divide: 2 x 4
}

TEST(Splits, TwoKeyHeadsOnFourRanks) {
  const SplitPiece piece = piece_of({0, 3, true}, 6, 4, 2);
  EXPECT_EQ(piece.range, (Range{3, 6}));
  EXPECT_EQ(piece.copies, 2);
  EXPECT_EQ(piece_of({0, 3, true, 12, 6}, 24, 4, 1).range, (Range{12, 15}));
}

TEST(Splits, APrimeVocabularyIsPadded) {
  const SplitPiece piece = piece_of({}, 13, 4, 3);
  EXPECT_EQ(piece.range, (Range{12, 13}));
  EXPECT_EQ(piece.extent, 4);
  EXPECT_TRUE(piece_of({}, 5, 4, 3).range.empty());  // 2 + 2 + 1 + nothing
}

TEST(Splits, RefusesWhatIsNoSplit) {
  EXPECT_THROW(piece_of({0, 3, true}, 9, 4, 0), Error);  // three heads for four ranks
  EXPECT_THROW(piece_of({0, 2}, 5, 2, 0), Error);
}

}  // namespace
}  // namespace forge
