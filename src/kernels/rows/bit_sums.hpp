#pragma once

#include <cstdint>

#include "core/partials.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// out[0] = Σ_j mix(j, bits of x[j]) mod 2^64: a checksum, the same in any order of additions and on any device. W: an
// unsigned word of 1, 2, 4 or 8 bytes; partial: sum_partials words of workspace.
template <class W>
void sum_bits(Stream&, View<const W, 1> x, View<std::uint64_t, 1> partial, View<std::uint64_t, 1> out);

// total[0] += mix(number, Σ_j mix(j, bits of x[j])) mod 2^64: a checksum of several x, each with a number of its own.
template <class W>
void add_bits(Stream&, View<const W, 1> x, std::uint64_t number, View<std::uint64_t, 1> partial,
              View<std::uint64_t, 1> total);

}  // namespace forge
