#pragma once

#include "device/stream.hpp"
#include "kernels/fp8/fp8_round.hpp"

namespace forge {

// counts(3) += of the first rows and columns of an operand x: how many they are; how many |x · scale| are beyond the
// format's largest number, or not finite; how many x other than 0 round to 0. scale = fp8_scale of the group's amax, as
// in fp8_round. `partials`: sum_partials doubles of workspace. samples(R): filler, as of take_amax(), has no part.
template <class T>
void fp8_count(Stream&, View<const T, 2> x, std::int64_t rows, std::int64_t columns, const ScaledOperand& operand,
               bool exact, View<const float, 1> amax, View<double, 1> partials, View<double, 1> counts,
               View<const std::int64_t, 1> samples = {});

// Likewise of a part x of matrices (kernels/fp8/fp8_encode.hpp), of whose rows the first `lines` of each matrix count,
// so many times.
template <class T>
void fp8_count_of_part(Stream&, View<const T, 1> x, std::int64_t first, const ScaledOperand& each, std::int64_t lines,
                       std::int64_t times, bool exact, View<const float, 1> amax, View<double, 1> partials,
                       View<double, 1> counts);

}  // namespace forge
