#pragma once

#include "core/types.hpp"
#include "kernels/attention/attention.hpp"

namespace forge {

// Rows of a sequence that warpgroups can go through.
inline constexpr std::int64_t specialized_rows = 131072;

// Whether warpgroups compute a call on tensor cores with these operands (attention_specialized.hpp), forward or, with
// d_o, backward. They do on GPUs that have them, without dropout, with up to specialized_rows rows of a sequence, where
// queries and keys have up to 192 columns a head, values and d_o up to 128, and heads, rows and addresses are multiples
// of 16 bytes; results may stand anywhere. Elsewhere products of warps do.
bool specialized_takes(const AttentionShape& shape, View<const bf16, 3> q, View<const bf16, 3> k, View<const bf16, 3> v,
                       View<const bf16, 3> d_o = {});

}  // namespace forge
