#include "config/head_ranks.hpp"

#include <array>

#include "small_deck.hpp"

// Ranks that exchange heads of attention: mesh.cp_method all_to_all and two_level.

namespace forge {
namespace {

using test::checked;
using test::expect_refused;

TEST(HeadRanks, OfAllToAllDivideTheHeads) {
  const auto deck = [](std::int64_t tp, std::int64_t cp, std::int64_t kv_heads) {
    return [=](Deck& d) {
      d.model.heads = 12, d.model.head_dim = 4, d.model.kv_heads = kv_heads, d.model.ffn = 60;
      d.mesh.tp = tp, d.mesh.cp = cp, d.mesh.cp_method = CpMethod::all_to_all;
      d.train.sequence_tokens = 240;
    };
  };
  expect_refused(deck(1, 5, 12), {"mesh.cp = 5", "cp must divide model.heads / tp = 12", "nearest legal cp: 4 or 6"},
                 5);
  for (const auto& [tp, cp, kv] : {std::array{1, 4, 4}, {1, 12, 4}, {3, 4, 3}, {6, 2, 3}, {2, 2, 4}, {2, 3, 4}})
    EXPECT_NO_THROW(checked(deck(tp, cp, kv), tp * cp)) << tp << ' ' << cp << ' ' << kv;
}

TEST(HeadRanks, OfTwoLevelsDivideHeadsAndRanks) {
  const auto deck = [](std::int64_t tp, std::int64_t cp, std::int64_t inner, int node_ranks = 0) {
    return [=](Deck& d) {
      d.model.heads = 12, d.model.head_dim = 4, d.model.kv_heads = 12, d.model.ffn = 60;
      d.mesh.tp = tp, d.mesh.cp = cp, d.mesh.cp_method = CpMethod::two_level;
      d.mesh.cp_inner = inner, d.mesh.node_ranks = node_ranks;
      d.train.sequence_tokens = 240;
    };
  };
  for (const auto& [inner, text] : {std::pair{1, "mesh.cp_inner = 1"},
                                    {3, "mesh.cp_inner = 3"},
                                    {8, "mesh.cp_inner = 8"},
                                    {5, "mesh.cp_inner = 5"}})
    expect_refused(deck(1, 8, inner), {text, "less than mesh.cp = 8", "heads / tp = 12", "legal: 2, 4"}, 8);
  expect_refused(deck(1, 8, 0), {"mesh.cp_inner = 0 with nodes that are not known", "legal: 2, 4"}, 8);
  expect_refused(
      deck(1, 4, 0, 8),
      {"mesh.cp_inner = 0 takes the ranks of a node, where 8 of mesh.cp = 4", "legal: 2, or cp_method: all_to_all"}, 4);
  expect_refused(deck(1, 2, 0, 8), {"no cp_inner between 1 and cp", "legal: cp_method: ring | all_gather"}, 2);
  expect_refused([](Deck& d) { d.mesh.cp = 4, d.mesh.cp_inner = 2, d.train.sequence_tokens = 240; },
                 {"mesh.cp_inner = 2; legal: 0, or cp_method: two_level"}, 4);
  for (const auto& [tp, cp, inner] : {std::array{1, 4, 2}, {1, 6, 3}, {1, 12, 6}, {3, 4, 2}, {2, 1, 5}})
    EXPECT_NO_THROW(checked(deck(tp, cp, inner), tp * cp)) << tp << ' ' << cp << ' ' << inner;
  EXPECT_NO_THROW(checked(deck(2, 8, 0, 4), 16));
}

// Without mesh.cp_inner: the cp ranks of a node, or as many as divide the heads.
TEST(HeadRanks, AreThoseOfTheNode) {
  Deck deck;
  deck.model.heads = 24;
  deck.mesh = {.dp_shard = 1, .cp = 8, .tp = 2, .cp_method = CpMethod::two_level};
  const auto inner = [&](std::int64_t cp, int node_ranks) {
    deck.mesh.cp = cp, deck.mesh.node_ranks = node_ranks;
    return head_ranks(deck);
  };
  EXPECT_EQ(inner(8, 8), 4);
  EXPECT_EQ(inner(16, 8), 4);
  EXPECT_EQ(inner(8, 4), 2);
  EXPECT_EQ(inner(8, 16), 4);  // 12 heads of a tp rank
  EXPECT_EQ(inner(6, 8), 2);
  EXPECT_EQ(inner(8, 3), 1);  // a node has parts of tp
  EXPECT_EQ(inner(8, 0), 1);
  EXPECT_EQ(inner(4, 16), 1);  // no second level
  EXPECT_EQ(inner(1, 8), 1);
}

}  // namespace
}  // namespace forge
