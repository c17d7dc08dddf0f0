#pragma once

#include <cstddef>

#include "core/types.hpp"

namespace forge {

// The rate (FLOP/s) that matrix products of the compute type reach here on random numbers: the best of many within
// about a third of a second; on a CPU never more than the rank's part of its node's cores reaches, ranks_of_node
// sharing them. mfu divides by it where the deck gives no machine.peak_tflops. Its memory is an arena of the run's size
// (arena_bytes, of which library_bytes are the library's), before the run has it: the product is as large as fits
// there. Throws BadInput where hardly anything fits.
double measure_peak(int threads, std::size_t library_bytes, std::size_t arena_bytes, DType compute,
                    int ranks_of_node = 1);

}  // namespace forge
