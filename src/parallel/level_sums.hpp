#pragma once

#include <array>

#include "comm/communicator.hpp"
#include "core/types.hpp"

namespace forge {

// A reduce-scatter in two levels (Reduction::nodes): part(count) ← Σ over the ranks of all nodes of their
// sums(nodes, ranks of a node, count), whose element [n, r] goes to rank r of node n. `node` has the ranks of this
// node, `rail` those of this rank's place on each node; part is this rank's own place in sums, whose rest is
// overwritten.
//   s_n ← Σ over the ranks of a node, in the accumulation type;   part = Σ_n T(s_n), but for s_own, which isn't rounded
// exchanged: two buffers of nodes · count numbers. |part − Σ s_n| ≤ u Σ_{n ≠ own} |s_n|, u = 2^-8 in bf16, beside the
// roundings of sums in the accumulation type.
template <class T>
void sum_in_levels(Communicator& node, Communicator& rail, Stream& stream, View<acc_t<T>, 1> sums,
                   View<acc_t<T>, 1> part, const std::array<T*, 2>& exchanged);

}  // namespace forge
