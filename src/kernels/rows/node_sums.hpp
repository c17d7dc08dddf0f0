#pragma once

#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// Two-level sums of gradients (parallel/level_sums.hpp): of each of n nodes a part of `count` numbers.

// to(n, count) = from, rounded to nearest.
template <class T>
void round_nodes(Stream& stream, View<const acc_t<T>, 2> from, View<T, 2> to);
// sum(count) ← Σ_n s_n in the order of nodes, in the accumulation type; s_own is `sum` itself, the others are rows of
// received(n, count).
template <class T>
void add_nodes(Stream& stream, View<const T, 2> received, std::int64_t own, View<acc_t<T>, 1> sum);

}  // namespace forge
