#pragma once

#include <gtest/gtest.h>

#include <string>

#include "config/fp8_recipe.hpp"
#include "config/schedule_name.hpp"
#include "core/collectives.hpp"
#include "sent_bytes.hpp"

namespace forge::test {

inline SentBytes by_kind(const Traffic& traffic) {
  const auto of = [&](Collective c) { return traffic.bytes[static_cast<std::size_t>(c)]; };
  EXPECT_EQ(of(Collective::broadcast), 0);
  return {of(Collective::all_reduce), of(Collective::all_gather),
          of(Collective::reduce_scatter) + of(Collective::all_to_all) + of(Collective::send)};
}

inline std::string bytes_text(const SentBytes& b) {
  return "all-reduce " + std::to_string(b.all_reduce) + ", all-gather " + std::to_string(b.all_gather) + ", messages " +
         std::to_string(b.messages);
}

// Takes from a deck all that the formula has no word for.
inline void simplify(Deck& deck) {
  deck.schedule.split = "even";
  ModelDeck& m = deck.model;
  const MeshDeck& mesh = deck.mesh;
  if (m.qkv_bias && mesh.tp > m.kv_heads) m.qkv_bias = false;
  if (mesh.tp > m.kv_heads) m.qk_norm_whole = false;
  const bool closed = mesh.pp == 1 && !m.tied_embeddings && m.positions == PositionKind::rope &&
                      deck.schedule.name != ScheduleName::zb_v && deck.schedule.virtual_stages == 1;
  if (deck.train.zero_stage == 3 && !closed) deck.train.gather = GatherPolicy::step;
  if (m.experts == 0) return;
  // Rows to experts depend on the router: here all of a rank's pairs, balanced, at once.
  m.capacity_factor = 0;
  m.capacity_drop = CapacityDrop::position;
  m.dispatch_rows = static_cast<double>(m.experts);
}

// Whether the formula has a word for the deck where rows go to its experts as codes of FP8; then they do.
inline bool dispatches_codes(Deck& deck) {
  if (deck.mesh.ep == 1 || deck.mesh.tp * deck.mesh.cp * deck.mesh.etp > 1) return false;
  TrainDeck& t = deck.train;
  t.precision = PrecisionName::fp8;
  t.fp8_recipe = deck.mesh.ep % 3 == 0 ? Fp8Recipe::block : Fp8Recipe::current;
  if (t.fp8_recipe == Fp8Recipe::block) deck.model.width = 144;
  t.fp8_experts = t.fp8_dispatch = true;
  return true;
}

}  // namespace forge::test
