#pragma once

#include <cstddef>

#include "core/types.hpp"

namespace forge {

// The rate (FLOP/s) of matrix products of the compute type here on random numbers: the best of many within about a
// third of a second; on a CPU at most the rate of the rank's part of its node's cores, which ranks_of_node share. mfu
// divides by it where the deck gives no machine.peak_tflops. It uses an arena of the run's size (arena_bytes,
// library_bytes of them for libraries), before the run has it: the product is as large as fits there. Throws BadInput
// where hardly anything fits.
double measure_peak(int threads, std::size_t library_bytes, std::size_t arena_bytes, DType compute,
                    int ranks_of_node = 1);

}  // namespace forge
