#pragma once

#include <vector>

#include "core/collectives.hpp"
#include "model/buffers.hpp"
#include "plan/rank_share.hpp"

namespace forge {

// What a rank sends of its units, by unit or round of matrices. Where it is said, plan/tasks.hpp and plan/traffic.hpp
// say when.

std::vector<Sent> gather_sends(const BufferContext& c, const RankShare& share, std::size_t unit);
// Largest magnitudes of weights.
std::vector<Sent> amax_sends(const CodedUnits& coded);
// Of a microbatch's gradients; `last`: and what is summed once a step.
std::vector<Sent> reduction_sends(const BufferContext& c, const LocalUnit& unit, bool last);
// A round's parts on their way to the owners, and back.
std::vector<Sent> matrix_sends(const BufferContext& c, const MatrixRound& round, bool back);
std::vector<Sent> factored_sends(const RankShare& share, std::size_t unit);

}  // namespace forge
