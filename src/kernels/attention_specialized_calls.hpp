#pragma once

#include <initializer_list>

#include "core/types.hpp"
#include "kernels/attention.hpp"

namespace forge {

// Whether warps of different tasks compute a call with these operands (machine.attention: warp_specialized): on GPUs
// that have products of warpgroups, without dropout, all heads of 64 or all of 128 columns, rows that begin at
// multiples of 16 bytes, up to 131,072 of a sequence. Where they don't, tensor_cores do.
bool specialized_takes(const AttentionShape& shape, std::initializer_list<View<const bf16, 3>> operands);

}  // namespace forge
