#pragma once

#include "config/deck.hpp"
#include "schedule/schedule.hpp"

namespace forge {

// What a generator is asked for. All of them work with one rank.
struct ScheduleRequest {
  ScheduleName name = ScheduleName::one_f_one_b;
  int ranks = 1;         // pp
  int chunks = 1;        // schedule.virtual_stages: model chunks per rank; read by interleaved only (zb_v has two)
  int microbatches = 1;  // M
  int group = 0;         // interleaved: microbatches that pass a chunk before the next chunk; 0 = pp
};

// The compute actions (F, B, W, or B and W in one) of one step; lower() completes them. Throws BadInput, naming key,
// rule and nearest legal values, for what the schedule's rule does not allow.
//   gpipe        all F, then all B (Huang et al., arXiv 1811.06965)
//   1f1b         stage r starts with pp - r forwards at most, then alternates (Narayanan et al., arXiv 2006.09503)
//   interleaved  chunks per rank, stage k on rank k mod pp (Narayanan et al., arXiv 2104.04473); groups of G
//   microbatches
//                with pp <= G <= M and M % G == 0 or M % G >= pp
//   zero_bubble  ZB-H1: split backward, at most pp microbatches between F and W on a rank (Qi et al., arXiv 2401.10241)
//   zb_v         two chunks in the form of a V; rank r holds stages r and 2 pp - 1 - r (Qi et al., arXiv 2405.15362)
Schedule generate(const ScheduleRequest& request);

// The deck's word for a schedule: "1f1b".
std::string_view name_of(ScheduleName name);

}  // namespace forge
