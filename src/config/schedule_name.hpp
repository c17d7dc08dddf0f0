#pragma once

#include <array>
#include <string_view>

#include "core/to_size.hpp"

// The deck's pipeline schedules. A new one stands here and in the table of schedule/generate.cpp.

namespace forge {

enum class ScheduleName : int {
  gpipe,        // all F, then all B (Huang et al., arXiv 1811.06965)
  one_f_one_b,  // stage r starts with pp - r forwards at most, then alternates (Narayanan et al., arXiv 2006.09503)
  interleaved,  // chunks per rank, stage k on rank k mod pp (Narayanan et al., arXiv 2104.04473); groups of G
                // microbatches with pp <= G <= M and M % G == 0 or M % G >= pp
  zero_bubble,  // ZB-H1: split backward, at most pp microbatches between F and W on a rank (Qi et al., arXiv
                // 2401.10241)
  zb_v          // two chunks in the form of a V; rank r holds stages r and 2 pp - 1 - r (Qi et al., arXiv 2405.15362)
};

// The deck's words for them, in this order.
inline constexpr std::array schedule_words{"gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v"};
constexpr std::string_view name_of(ScheduleName name) {
  return schedule_words[to_size(name)];
}

inline constexpr ScheduleName default_schedule_name = ScheduleName::one_f_one_b;

// Model chunks per rank that a schedule has; 0: as many as the deck says.
constexpr int chunks_of(ScheduleName name) {
  return name == ScheduleName::interleaved ? 0 : name == ScheduleName::zb_v ? 2 : 1;
}

// Whether its passes can run in pairs (train.overlap).
constexpr bool has_pairs(ScheduleName name) {
  return name == ScheduleName::one_f_one_b || name == ScheduleName::interleaved || name == ScheduleName::zero_bubble ||
         name == ScheduleName::zb_v;
}
// The fewest microbatches of which some do: zb_v's pipeline is full then.
constexpr int least_paired(ScheduleName name, int pp) {
  return name == ScheduleName::zb_v && pp > 1 ? 2 * pp - 1 : 2;
}

}  // namespace forge
