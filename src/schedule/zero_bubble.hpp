#pragma once

#include "schedule/schedule.hpp"

namespace forge {

// Puts W's into lists of F's and B's: in a simulation with F = B = W = 1, a rank does a W when it would otherwise stand
// still, and before an F that would have more than `limit` (chunk, microbatch) pairs between F and W on the rank.
// 1F1B's order of F and B with limit pp gives ZB-H1 (Qi et al., arXiv 2401.10241).
void fill_with_weights(Schedule& schedule, int limit);

// The V-shaped schedule of two chunks (Qi et al., arXiv 2405.15362): at most 2 pp chunk activations per rank, which is
// pp whole stages as in 1F1B, and no bubble in the middle when F, B and W take the same time.
Schedule zb_v(int ranks, int microbatches);

}  // namespace forge
