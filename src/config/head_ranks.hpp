#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"

namespace forge {

// Consecutive cp ranks that exchange heads of attention for positions: 1 with ring and all_gather, cp with all_to_all,
// with two_level mesh.cp_inner. Where that is 0: those of a node, or the most of them that divide cp and heads / tp.
// 1 where the deck breaks a rule of two_level.
std::int64_t head_ranks(const Deck& deck);

// Values of mesh.cp_inner, ascending: 1 < n < cp, n divides cp and model.heads / tp.
std::vector<std::int64_t> legal_head_ranks(const Deck& deck);
// "" or the rule that mesh.cp_inner breaks, with legal values.
std::string head_ranks_problem(const Deck& deck);

}  // namespace forge
