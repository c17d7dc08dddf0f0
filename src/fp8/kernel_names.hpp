#pragma once

#include <string_view>

// The kernels of FP8 by the names that reports and rates have for them (RowKernel).
namespace forge::rounding_kernels {

inline constexpr std::string_view amax = "fp8_amax", amax_of_ranks = "fp8_amax_of_ranks", raise = "fp8_raise",
                                  encode = "fp8_encode", round = "fp8_round", encode_rows = "fp8_encode_rows",
                                  decode_rows = "fp8_decode_rows";

}  // namespace forge::rounding_kernels
