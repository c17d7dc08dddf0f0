#pragma once

#include "model/buffers.hpp"

namespace forge {

// Sizes of a layer with experts on one rank. Each rank routes the S rows of its residual stream; an assignment is (row,
// choice); assignments go to the ranks that have their experts in rounds of bounded size, so that memory doesn't depend
// on what the router does.
struct MoeShape {
  std::int64_t rows = 0;          // S
  std::int64_t chosen = 0;        // k
  std::int64_t experts = 0;       // E
  std::int64_t experts_here = 0;  // E / ep
  std::int64_t ffn = 0;           // Fe / etp
  std::int64_t capacity = 0;      // assignments of an expert in a scope; 0: all
  std::int64_t places = 0;      // of this rank's assignments in the order of experts; with static shapes E · capacity
  std::int64_t round_rows = 0;  // rows that a rank takes in a round
  int sources = 1;              // ranks that share the layer's experts: ep · etp
  bool gathers = false;         // all rows of the sources go to each of them, and their assignments stand in one order
  bool fixed = false;           // static shapes: every source sends `capacity` rows to every expert, padded

  bool exchanges() const { return sources > 1; }
};
MoeShape moe_shape(const BufferContext&);

// A layer's sums of a step, behind the assignments of each expert.
enum RouterSum : std::int64_t { balance_sum, z_sum, dropped_sum };
inline constexpr std::int64_t router_sum_count = 3;

// Scopes of the auxiliary loss in a microbatch on this rank: its sequences, or one.
std::int64_t balance_scopes(const BufferContext&);

}  // namespace forge
