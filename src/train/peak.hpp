#pragma once

#include "core/types.hpp"
#include "device/stream.hpp"
#include "kernels/gemm.hpp"

namespace forge {

// The rate (FLOP/s) that a large matrix product of the compute type reaches here: the best of a few within about a
// third of a second. mfu divides by it where the deck gives no machine.peak_tflops.
double measure_peak(Stream& stream, Gemm& gemm, DType compute);

}  // namespace forge
