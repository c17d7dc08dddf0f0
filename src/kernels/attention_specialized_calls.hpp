#pragma once

#include "core/types.hpp"
#include "kernels/attention.hpp"

namespace forge {

// Whether warpgroups compute a call on tensor cores with these operands (attention_specialized.hpp), forward or, with
// d_o, backward: on GPUs that have them, without dropout, keys of up to 192 columns and values of up to 128, which are
// multiples of 16 bytes, like rows, of which a sequence has up to 131,072. Where they don't, products of warps do.
bool specialized_takes(const AttentionShape& shape, View<const bf16, 3> q, View<const bf16, 3> k, View<const bf16, 3> v,
                       View<const bf16, 3> d_o = {});

}  // namespace forge
