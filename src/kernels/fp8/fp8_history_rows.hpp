#pragma once

#include "device/stream.hpp"
#include "fp8/amax_history.hpp"
#include "kernels/kernels.hpp"

namespace forge {

// most = max(most, amax), of one number each.
void fp8_raise(Stream&, View<const float, 1> amax, View<float, 1> most);

// given(rows) = the largest of each row of the history.
void fp8_largest_of_history(Stream&, View<const float, 2> entries, View<float, 1> given);

// To be called behind the reduction of the step's amaxes: one that isn't finite makes the gradient's squared norm Inf,
// so that all ranks leave the step out.
void fp8_judge_history(Stream&, View<const float, 1> step, View<StepScalars, 1> scalars);

// In a finite step: the history's rows move on by one entry, the first of which is the step's; given as above.
void fp8_move_history(Stream&, View<const StepScalars, 1> scalars, View<const float, 1> step, View<float, 2> entries,
                      View<float, 1> given);

}  // namespace forge
